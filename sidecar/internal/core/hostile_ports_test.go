package core

import (
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// hostilePorts are the engine and the links of a core with hostile peers and applications.
// They keep their own promises, and check those of the core: memory exists when it is touched,
// and is not released while a link may touch it.
type hostilePorts struct {
	r     *rand.Rand
	core  *Core
	now   int64
	count hostileCount
	keys  map[uint64]link.Ref // registered memory
	drawn uint64              // number of keys made
	ops   []hostileOp
	own   []*link.Frame // taken by the pod's own link and not yet delivered
	links [hostilePods]hostileLink
	up    [hostilePods]bool
	freed [hostileRanks]bool
	lent  [hostileRanks]map[uint32]link.Lent
	open  [hostileRanks]map[uint32]bool // requests that must end

	handles [4]uint64 // handles of recent matched probes
}

// hostileLink is one connection.
type hostileLink struct {
	unwritten []*link.Frame // taken; their memory is still referenced
	payloads  []link.Ref    // their payloads, as of Post
	written   uint64        // number of the last frame that was written
	seen      []wire.Header // recent frames, to be answered
}

// hostileOp is a remote operation in flight.
type hostileOp struct {
	peer   link.Peer
	token  uint64
	mem    link.Ref
	broken bool // its connection is gone, which is still to be reported
}

// hostileMemory is the memory that all seeds share, in the order of regions.
var hostileMemory = func() [][]byte {
	m := make([][]byte, RegionFirst+2*hostileRanks)
	m[RegionDiscard] = make([]byte, wire.FrameMax)
	m[RegionPool] = make([]byte, Config{Pods: hostilePods, CreditBytes: 128 << 10}.PoolBytes())
	m[RegionRings] = make([]byte, 4<<20)
	for i := RegionFirst; int(i) < len(m); i++ {
		m[i] = make([]byte, hostileMem)
	}
	return m
}()

func slabOf(s SessionID) link.Ref {
	return link.Ref{Region: RegionFirst + 2*link.Region(s), Len: hostileMem}
}

func arenaOf(s SessionID) link.Ref {
	return link.Ref{Region: RegionFirst + 2*link.Region(s) + 1, Len: hostileMem}
}

// lentOf returns the region of the memory that a session lends. The ports do not see its
// bytes.
func lentOf(s SessionID) link.Region {
	return RegionFirst + 2*hostileRanks + link.Region(s)
}

// lends returns the lent memory that r is part of, and its number; ok is false if r is not
// lent.
func (h *hostilePorts) lends(r link.Ref) (m link.Lent, number uint32, ok bool) {
	if r.Region < lentOf(0) {
		return m, 0, false
	}
	number = uint32(r.Off >> link.LentShift)
	return h.lent[r.Region-lentOf(0)][number], number, true
}

// there checks that r exists, because a link is about to access it.
func (h *hostilePorts) there(r link.Ref) {
	m, number, lent := h.lends(r)
	if !lent {
		h.Bytes(r)
		return
	}
	off := r.Off & (1<<link.LentShift - 1)
	if s, _ := sessionOf(r); h.freed[s] || r.Len == 0 || r.Len > m.Len || off > m.Len-r.Len {
		panic(fmt.Sprintf("%d bytes at %d of memory %d of session %d are reached, which lends %d", r.Len, off, number, s, m.Len))
	}
}

// Lend implements link.Lender: it checks that the number is not lent, and fails sometimes.
func (h *hostilePorts) Lend(r link.Region, number uint32, m link.Lent) error {
	list := h.lent[r-lentOf(0)]
	if _, is := list[number]; is {
		panic(fmt.Sprintf("memory %d is lent twice", number))
	}
	if h.r.IntN(20) == 0 {
		return errGone
	}
	list[number] = m
	h.count.lent++
	return nil
}

// Reclaim ends lent memory. It checks that no peer has a key for it and, unless the job has
// failed, that no link accesses it.
func (h *hostilePorts) Reclaim(r link.Region, number uint32) {
	list := h.lent[r-lentOf(0)]
	if _, is := list[number]; !is {
		panic(fmt.Sprintf("memory %d is reclaimed, and not lent", number))
	}
	delete(list, number)
	refers := func(x link.Ref) bool { return x.Region == r && uint32(x.Off>>link.LentShift) == number }
	for key, mem := range h.keys {
		if refers(mem) {
			panic(fmt.Sprintf("memory %d is reclaimed while peers reach it by key %d", number, key))
		}
	}
	for _, op := range h.ops {
		if refers(op.mem) && h.core.fail == nil {
			panic(fmt.Sprintf("memory %d is reclaimed under a remote operation", number))
		}
	}
	h.count.reclaimed++
}

// clearMemory makes a seed independent of the seeds before.
func (h *hostilePorts) clearMemory() {
	for i := RegionRings; int(i) < len(hostileMemory); i++ {
		clear(hostileMemory[i])
	}
}

// sessionOf returns the session whose memory r is, or false if r is memory of the core.
func sessionOf(r link.Ref) (SessionID, bool) {
	if r.Region >= lentOf(0) {
		return SessionID(r.Region - lentOf(0)), true
	}
	return SessionID(r.Region-RegionFirst) / 2, r.Region >= RegionFirst
}

// Bytes implements Ports: it checks that the memory of r is not freed.
func (h *hostilePorts) Bytes(r link.Ref) []byte {
	if s, ok := sessionOf(r); ok && h.freed[s] {
		panic(fmt.Sprintf("memory of session %d is touched after it was let go of", s))
	}
	return hostileMemory[r.Region][r.Off : r.Off+r.Len]
}

// Freed ends the memory of a session, and checks that nothing refers to it.
func (h *hostilePorts) Freed(s SessionID) {
	refers := func(r link.Ref) bool { o, ok := sessionOf(r); return ok && o == s && r.Len > 0 }
	for p := range h.links {
		for i, mem := range h.links[p].payloads {
			if refers(mem) {
				panic(fmt.Sprintf("memory of session %d is let go of while frame %d is being written from it", s, h.links[p].unwritten[i].Head.Seq))
			}
		}
	}
	for _, op := range h.ops {
		if refers(op.mem) {
			panic(fmt.Sprintf("memory of session %d is let go of under a remote operation", s))
		}
	}
	for key, mem := range h.keys {
		if refers(mem) {
			panic(fmt.Sprintf("memory of session %d is let go of while peers reach it by key %d", s, key))
		}
	}
	for req := range h.open[s] {
		panic(fmt.Sprintf("session %d is let go of without an end of its request %d", s, req))
	}
	h.freed[s] = true
}

// Complete checks that each request ends once.
func (h *hostilePorts) Complete(s SessionID, d *shm.Descriptor) {
	if h.freed[s] {
		panic("a completion for memory that was let go of")
	}
	if d.Op != shm.OpDone {
		return
	}
	if aux := d.Aux(); aux>>32 != 0 { // may be the handle of a matched probe
		h.handles[h.count.ended%len(h.handles)] = aux
	}
	if !h.open[s][d.Req] {
		panic(fmt.Sprintf("session %d: request %d ends, and is not open", s, d.Req))
	}
	delete(h.open[s], d.Req)
	h.count.ended++
}

func (h *hostilePorts) Register(_ link.Peer, ref link.Ref) (link.Key, error) {
	h.there(ref)
	if h.r.IntN(20) == 0 {
		return link.Key{}, errGone
	}
	if _, _, lent := h.lends(ref); lent {
		h.count.lentUses++
	}
	h.drawn++
	h.keys[h.drawn] = ref
	return link.Key{Key: h.drawn}, nil
}

func (h *hostilePorts) Expose(p link.Peer, ref link.Ref) (link.Key, error) {
	h.count.exposed++
	return h.Register(p, ref)
}

func (h *hostilePorts) Deregister(_ link.Peer, k link.Key) {
	if _, ok := h.keys[k.Key]; !ok {
		panic(fmt.Sprintf("key %d ends twice", k.Key))
	}
	delete(h.keys, k.Key)
}

func (h *hostilePorts) Release(p link.Peer, k link.Key) { h.Deregister(p, k) }

func (h *hostilePorts) Read(p link.Peer, token uint64, dst link.Ref, _ link.Key) error {
	return h.start(p, token, dst)
}

func (h *hostilePorts) Write(p link.Peer, token uint64, src link.Ref, _ link.Key, _ uint64) error {
	return h.start(p, token, src)
}

func (h *hostilePorts) start(p link.Peer, token uint64, mem link.Ref) error {
	h.there(mem)
	if _, _, lent := h.lends(mem); lent {
		h.count.lentUses++
	}
	if p != 0 && !h.up[p] || h.r.IntN(20) == 0 {
		return errGone
	}
	h.count.remote++
	h.ops = append(h.ops, hostileOp{peer: p, token: token, mem: mem})
	return nil
}

// Disconnect ends a connection without a report (link.Link, Forget).
func (h *hostilePorts) Disconnect(p link.Peer) { h.forget(p) }

func (h *hostilePorts) forget(p link.Peer) {
	h.up[p] = false
	h.links[p] = hostileLink{}
	for i := range h.ops {
		if h.ops[i].peer == p {
			h.ops[i].broken = true
		}
	}
}

func (h *hostilePorts) Discard(link.Ref)                                         {}
func (h *hostilePorts) Retire(SessionID, uint64)                                 {}
func (h *hostilePorts) Failed(SessionID, string)                                 {}
func (h *hostilePorts) Connect(link.Peer)                                        {}
func (h *hostilePorts) Note(NoteKind, link.Peer, uint32, uint64, uint64, uint64) {}

// Post takes some of the frames.
func (h *hostilePorts) Post(p link.Peer, frames []*link.Frame) int {
	if p != 0 && !h.up[p] || h.r.IntN(4) == 0 {
		return 0
	}
	n := 1 + h.r.IntN(len(frames))
	for _, f := range frames[:n] {
		h.Bytes(f.Payload)
		if p == 0 {
			h.own = append(h.own, f)
			continue
		}
		if f.Head.Seq > 0 { // the core may use the others again
			x := &h.links[p]
			x.unwritten, x.payloads = append(x.unwritten, f), append(x.payloads, f.Payload)
			x.seen = append(x.seen, f.Head)
			x.seen = x.seen[max(0, len(x.seen)-32):]
		}
		switch f.Head.Type {
		case wire.Fetch, wire.Lock, wire.Flush, wire.Unlock, wire.Retract, wire.Get:
			h.count.asked++
		}
	}
	return n
}

// write lets links write some of the frames that they have taken.
func (h *hostilePorts) write() {
	for p := range h.links {
		x := &h.links[p]
		if len(x.unwritten) == 0 {
			continue
		}
		n := h.r.IntN(len(x.unwritten) + 1)
		for i, f := range x.unwritten[:n] {
			h.Bytes(x.payloads[i])
			x.written = f.Head.Seq
		}
		x.unwritten, x.payloads = x.unwritten[n:], x.payloads[n:]
		if h.core.peers[p].Caps().Delivers && h.r.IntN(2) == 0 {
			h.core.Delivered(h.now, link.Peer(p), x.written)
		}
	}
}
