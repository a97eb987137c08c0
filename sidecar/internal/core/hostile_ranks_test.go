package core

import (
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// hostileRequests is the number of request numbers in use. It is small, so that cancels,
// stages and reused numbers often name an open request.
const hostileRequests = 60

// hostileExposures is the number of exposure numbers that are used mostly.
const hostileExposures = 3

// submit submits a descriptor of a rank of this pod.
func (h *hostile) submit() {
	s := SessionID(h.r.IntN(hostileRanks))
	if x := h.core.sessions[s]; x == nil || x.Left() || h.core.Held(s) {
		return
	}
	d := h.descriptor(s)
	before := h.open[s][d.Req]
	if d.Op == shm.OpDetach {
		clear(h.open[s])
	}
	if ends(&d) { // the request may end before Submit returns
		h.open[s][d.Req] = true
	}
	err := h.core.Submit(h.now, s, &d)
	if err == nil {
		h.known(s, &d)
	}
	switch {
	case err == nil && ends(&d):
		h.count.submitted++
	case err != nil && ends(&d) && !before:
		delete(h.open[s], d.Req)
	}
	if h.core.sessions[s] != nil && h.core.collectives.Reading(s) {
		h.count.pieces++
	}
	// The engine would end the session. Mostly the test goes on with it.
	if err != nil && h.r.IntN(1000) == 0 {
		h.detach(s, err)
	}
}

// ends reports whether a descriptor, if it is accepted, has an OpDone (L§5).
func ends(d *shm.Descriptor) bool {
	switch d.Op {
	case shm.OpCancel, shm.OpStage, shm.OpCommFree, shm.OpReduced, shm.OpAbort, shm.OpDetach, shm.OpDrop, shm.OpShut:
		return false
	}
	return d.Op != shm.OpSend || d.Flags&shm.FlagSilent == 0
}

// detach detaches a rank. Its requests end without completions.
func (h *hostile) detach(s SessionID, reason error) {
	if x := h.core.sessions[s]; x == nil || x.Left() {
		return
	}
	clear(h.open[s])
	h.core.Detach(h.now, s, reason)
}

// descriptor returns a descriptor that is mostly valid.
func (h *hostile) descriptor(s SessionID) shm.Descriptor {
	d := shm.Descriptor{Op: shm.Op(1 + h.r.IntN(int(shm.OpSubmitMax))), Req: h.req % hostileRequests, Peer: uint32(h.r.IntN(len(hostileJob))), Context: 9, Tag: uint64(h.r.IntN(2))}
	h.req++
	if (d.Op == shm.OpDetach || d.Op == shm.OpAbort) && h.r.IntN(60) > 0 {
		d.Op = []shm.Op{shm.OpPut, shm.OpGet, shm.OpRecv, shm.OpSend}[h.r.IntN(4)]
	}
	if h.r.IntN(5) == 0 {
		d.Peer = shm.AnySource
	}
	h.body(s, &d)
	switch d.Op {
	case shm.OpCancel, shm.OpStage, shm.OpReduced:
		d.Req = uint32(h.r.IntN(hostileRequests))
	case shm.OpSend:
		if h.r.IntN(4) == 0 {
			d.Flags |= shm.FlagSync
		}
		if d.Class == shm.ClassInline && h.r.IntN(3) == 0 {
			d.Flags = shm.FlagSilent
		}
		if d.Flags&shm.FlagSync == 0 && h.r.IntN(3) == 0 {
			d.Flags |= shm.FlagReply
			d.Status = shm.Status(h.r.IntN(hostileRequests))
		}
	case shm.OpProbe, shm.OpMprobe:
		d.Flags = shm.FlagNow * uint8(h.r.IntN(2))
	case shm.OpLock:
		d.Flags = shm.FlagExclusive * uint8(h.r.IntN(2))
	case shm.OpAcc:
		d.Tag = hostileSum
	case shm.OpFetch, shm.OpCas:
		d.Status = shm.Status(hostileSum)
		d.SetInline(make([]byte, 8+8*h.r.IntN(2)))
	case shm.OpComm:
		h.communicator(s, &d)
	case shm.OpColl:
		h.collective(s, &d)
	}
	return d
}

// body sets memory of a random class, within the session's memory or not.
func (h *hostile) body(s SessionID, d *shm.Descriptor) {
	d.Class = []shm.Class{shm.ClassArena, shm.ClassArena, shm.ClassSlab, shm.ClassInline, shm.ClassStaged, shm.ClassNone, shm.ClassExposed, shm.ClassExposed}[h.r.IntN(8)]
	if d.Class == shm.ClassInline {
		d.SetInline(make([]byte, 8<<h.r.IntN(3)))
		return
	}
	aux := h.number()
	switch d.Op {
	case shm.OpPut, shm.OpGet, shm.OpAcc:
		aux = uint64(h.r.IntN(4096))
	case shm.OpRecv, shm.OpProbe, shm.OpMprobe:
		aux = uint64(h.r.IntN(2)) // ignore mask
	}
	at, n := uint64(h.r.IntN(512<<10)), h.size()
	if h.r.IntN(200) == 0 {
		at = hostileMem - 1
	}
	switch {
	case d.Op == shm.OpExpose, d.Op == shm.OpUnexpose:
		if aux = h.exposure(s, d.Op == shm.OpUnexpose && h.r.IntN(2) == 0); h.r.IntN(4) > 0 {
			n = hostileMem
		}
	case d.Class == shm.ClassExposed:
		at |= h.exposure(s, true) << shm.ExposureShift
	}
	d.SetBody(at, n, aux, h.handle())
}

// exposure returns the number of an exposure, mostly one of hostileExposures, and one that
// exists if there is set.
func (h *hostile) exposure(s SessionID, there bool) uint64 {
	if h.r.IntN(100) == 0 {
		return uint64(h.r.IntN(1 << 16))
	}
	n := uint64(h.r.IntN(hostileExposures))
	for range hostileExposures - 1 {
		if _, is := h.lent[s][uint32(n)]; there && !is {
			n = (n + 1) % hostileExposures
		}
	}
	return n
}

// handle returns the handle of a matched probe, or any number.
func (h *hostile) handle() uint64 {
	if h.r.IntN(4) > 0 {
		return h.handles[h.r.IntN(len(h.handles))]
	}
	return h.number()
}

// communicator writes a list of ranks that includes the rank itself.
func (h *hostile) communicator(s SessionID, d *shm.Descriptor) {
	d.Context = uint32(8 + h.r.IntN(4))
	if d.Class = shm.ClassArena; h.r.IntN(3) == 0 {
		d.Class = shm.ClassNone
		d.SetBody(0, 0, uint64(h.r.IntN(12)), 0)
		return
	}
	n := 1 + h.r.IntN(3)
	list := arenaOf(s).Slice(0, uint64(4*n))
	for i := range n {
		binary.LittleEndian.PutUint32(h.Bytes(list)[4*i:], uint32(h.r.IntN(len(hostileJob))))
	}
	binary.LittleEndian.PutUint32(h.Bytes(list), uint32(s))
	d.SetBody(0, list.Len, 0, 0)
}

// known records the communicators that exist.
func (h *hostile) known(s SessionID, d *shm.Descriptor) {
	m := h.comms[s]
	if m == nil {
		m = map[uint32]int{}
		h.comms[s] = m
	}
	switch {
	case d.Op == shm.OpCommFree:
		delete(m, d.Context)
	case d.Op == shm.OpComm && d.Class != shm.ClassNone:
		m[d.Context] = int(d.Len() / 4)
	case d.Op == shm.OpComm && d.Aux() == 0:
		m[d.Context] = len(hostileJob)
	case d.Op == shm.OpComm:
		m[d.Context] = m[uint32(d.Aux())]
	}
}

// collective writes a block and its vectors.
func (h *hostile) collective(s SessionID, d *shm.Descriptor) {
	b := shm.CollBlock{
		Kind: uint8(1 + h.r.IntN(14)), Type: shm.TypeUint64, Op: shm.ReduceSum, Count: uint64(h.r.IntN(3000)), Elem: 8, Root: uint32(h.r.IntN(len(hostileJob))),
		InBytes: 256 << 10, Out: 256 << 10, OutBytes: 256 << 10, Scratch: 512 << 10, ScratchBytes: 512 << 10, Context: []uint32{0, 0, 8, 9}[h.r.IntN(4)],
	}
	if h.r.IntN(3) == 0 {
		b.Op = uint8(coll.User)
	}
	size, is := h.comms[s][b.Context]
	if !is {
		size = len(hostileJob)
	}
	b.Vectors = vectorsOf(coll.Kind(b.Kind))
	block := slabOf(s).Slice(0, shm.CollBlockBytes+uint64(8*int(b.Vectors)*size))
	b.Encode(h.Bytes(block))
	for i := range int(b.Vectors) * size {
		n := uint64(64) // a count, and as many displacements after it
		if i/size%2 == 1 {
			n *= uint64(i % size)
		}
		if h.r.IntN(500) == 0 {
			n = h.number()
		}
		binary.LittleEndian.PutUint64(h.Bytes(block)[shm.CollBlockBytes+8*i:], n)
	}
	d.Class = shm.ClassSlab
	d.SetBody(0, block.Len, 0, 0)
}

// vectorsOf returns the number of vectors of a kind (L§5.4).
func vectorsOf(k coll.Kind) uint32 {
	switch k {
	case coll.Gatherv, coll.Scatterv, coll.Allgatherv:
		return 2
	case coll.ReduceScatter:
		return 2
	case coll.Alltoallv:
		return 4
	}
	return 0
}
