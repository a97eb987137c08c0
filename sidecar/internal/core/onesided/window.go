package onesided

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/epoch"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// window is the memory that one hosted rank exposes under a window number.
type window struct {
	session ranks.SessionID
	mem     link.Ref
	errors  map[uint32]shm.Status // first error since the last flush, by origin rank
	// The lock: the ranks that hold it, or the rank that holds it exclusively, and the queue
	// of waiting ranks.
	holders   holders
	exclusive bool
	waiting   queue.FIFO[lockWaiter]
	closed    bool // the window is freed: its lock is not granted any more
	index     int  // index of the window in Room.windows
	tokens    epoch.Tokens
	exposed   uint64 // the window's record in Room.exposures; 0: no peer has accessed it
}

// windowLimit bounds the windows of one application. One more ends with StatusNoMemory, and so does
// one whose memory.WindowCost the application may not use.
const windowLimit = 4096

// window returns a window of a rank by its number; nil: it does not exist here.
func (r *Room) window(number, rank uint32) *window {
	if int(rank) >= len(r.hosts) || r.hosts[rank] == nil {
		return nil
	}
	return r.hosts[rank].wins[number]
}

// SubmitWindow creates a window of an application.
func (r *Room) SubmitWindow(id ranks.SessionID, d *shm.Descriptor) error {
	b := r.members[id]
	s, e := b.session, b.host
	mem := link.Ref{}
	if d.Len() > 0 {
		var err error
		if mem, err = s.Memory(d.Class, d.Addr(), d.Len()); err != nil {
			return err
		}
	}
	if e.wins[d.Context] != nil {
		return fmt.Errorf("window %d exists already", d.Context)
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	if len(e.wins) >= windowLimit || s.Charge(memory.WindowCost) != nil { // no fault of the program: it gets a status
		r.sessions.Finish(id, d.Req, shm.StatusNoMemory)
		return nil
	}
	if e.wins == nil {
		e.wins = map[uint32]*window{}
	}
	w := &window{session: id, mem: mem, errors: map[uint32]shm.Status{}, index: len(r.windows)}
	e.wins[d.Context], r.windows = w, append(r.windows, w)
	r.sessions.Finish(id, d.Req, shm.StatusOK)
	return nil
}

// FreeWindow frees a window; its request ends when no peer accesses the memory any more.
func (r *Room) FreeWindow(id ranks.SessionID, d *shm.Descriptor) error {
	b := r.members[id]
	w := b.host.wins[d.Context]
	if w == nil {
		return fmt.Errorf("window %d does not exist", d.Context)
	}
	if err := b.session.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	if w.tokens.Waiting() { // the rank itself waits in an epoch of the window
		r.sessions.Finish(id, d.Req, shm.StatusInvalid)
		return nil
	}
	delete(b.host.wins, d.Context)
	r.closeWindow(w)
	if !r.conceal(w, d.Req+1) {
		b.session.Refund(memory.WindowCost)
		r.sessions.Finish(id, d.Req, shm.StatusOK)
	}
	return nil
}

// exposedPart returns the part of a window that a frame names. Errors of the origin are
// kept for its next flush; window nil: there was one.
func (r *Room) exposedPart(p *peer, h *wire.Header, n uint64) (link.Ref, *window) {
	w := r.window(h.Context, h.Dst)
	if w == nil {
		if h.Type == wire.Put || h.Type == wire.Acc { // these have no answer that could carry the error
			p.missed.add(h)
		}
		return link.Ref{}, nil
	}
	if n > w.mem.Len || h.Tag > w.mem.Len-n {
		w.errors[h.Src] = shm.StatusInvalid
		return link.Ref{}, nil
	}
	return w.mem.Slice(h.Tag, n), w
}

// placeAccess returns the destination of the payload of a Put or Acc: the window itself, or
// the pool, because an accumulate has to be combined with the window.
func (r *Room) placeAccess(p *peer, h *wire.Header) (Destination, error) {
	if err := r.addressed(p, h); err != nil {
		return Destination{}, err
	}
	ref, w := r.exposedPart(p, h, uint64(h.Length))
	if w == nil {
		return Destination{Where: Discard}, nil
	}
	if h.Type == wire.Put {
		r.exposureOf(w, h.Dst).Placing()
		return Destination{Where: Memory, Memory: ref, Session: w.session, Of: Inbound{InboundPut, w.exposed}}, nil
	}
	typ := coll.Type(h.A >> 8)
	if coll.Valid(coll.Op(uint8(h.A)), typ) != nil || uint64(h.Length)%uint64(typ.Size()) != 0 || h.Length > AccFragment {
		w.errors[h.Src] = shm.StatusUnsupported
		return Destination{Where: Discard}, nil
	}
	return Destination{Where: Pool, Of: Inbound{Kind: InboundAcc}}, nil
}

// putPlaced handles the end of a Put, whose payload is in the window.
func (r *Room) putPlaced(id uint64, h *wire.Header) {
	r.stats.OneSided.Add(uint64(h.Length))
	r.putEnded(id)
}

// accPlaced combines the payload of an Acc with the window.
func (r *Room) accPlaced(p *peer, h *wire.Header, from link.Ref) {
	// The window may have been freed while the payload arrived.
	if ref, w := r.exposedPart(p, h, uint64(h.Length)); w != nil {
		if coll.Apply(coll.Op(uint8(h.A)), coll.Type(h.A>>8), r.ports.Bytes(ref), r.ports.Bytes(from)) != nil {
			w.errors[h.Src] = shm.StatusUnsupported
		}
		r.stats.OneSided.Add(uint64(h.Length))
	}
}

// addressed checks that a frame goes to a hosted rank and comes from a rank of its peer.
func (r *Room) addressed(p *peer, h *wire.Header) error {
	if int(h.Dst) >= len(r.hosts) || r.hosts[h.Dst] == nil {
		return ranks.NotHere(h)
	}
	if int(h.Src) >= len(r.hosts) || r.podOf(h.Src) != p.id {
		return ranks.NotThere(h)
	}
	return nil
}

// Frame handles requests and answers, whose payload is in the frame.
func (r *Room) Frame(from link.Peer, h *wire.Header, payload []byte) error {
	p := r.peer(from)
	switch h.Type {
	case wire.Fetched, wire.Locked, wire.Flushed:
		return r.onAnswer(p, h, payload)
	case wire.Expose:
		return r.onExpose(p, h)
	case wire.Exposed:
		return r.onExposed(p, h, payload)
	case wire.Conceal:
		return r.onConceal(p, h)
	case wire.Concealed:
		return r.onConcealed(p, h)
	}
	if err := r.addressed(p, h); err != nil {
		return err
	}
	switch h.Type {
	case wire.Get:
		return r.onGet(p, h)
	case wire.Fetch:
		r.onFetch(p, h, payload)
	case wire.Lock:
		return r.onLock(p, h)
	case wire.Unlock:
		r.onUnlock(p, h)
	case wire.Flush:
		r.onFlush(p, h)
	case wire.Post:
		r.onEpoch(h, epoch.Post)
	case wire.Complete:
		r.onEpoch(h, epoch.Complete)
	default:
		return fmt.Errorf("%w: unexpected %v", link.ErrProtocol, h.Type)
	}
	return nil
}

// onFetch combines one element and answers with the previous value.
func (r *Room) onFetch(p *peer, h *wire.Header, payload []byte) {
	typ, op := coll.Type(h.B>>8), coll.Op(uint8(h.B))
	size, args := typ.Size(), 1
	if op == 0 {
		args = 2
	}
	if size == 0 || len(payload) != args*size || op != 0 && coll.Valid(op, typ) != nil {
		r.answerFlush(p.id, h.A, shm.StatusUnsupported)
		return
	}
	ref, w := r.exposedPart(p, h, uint64(size))
	if w == nil {
		r.answerFlush(p.id, h.A, shm.StatusInvalid)
		return
	}
	r.stats.OneSided.Add(uint64(size))
	mem := r.ports.Bytes(ref)
	f := r.channel.Answer(p.id, wire.Fetched)
	f.Head.A, f.Head.Length = h.A, uint32(size)
	copy(f.Inline[:], mem)
	switch {
	case op != 0:
		if coll.Apply(op, typ, mem, payload) != nil {
			w.errors[h.Src] = shm.StatusUnsupported
		}
	case string(mem) == string(payload[:size]):
		copy(mem, payload[size:])
	}
}

// onFlush answers with the origin's errors so far: frames are handled in order
// (PROTOCOL.md §5.6). Tag 1 asks for all windows of that number on this sidecar.
func (r *Room) onFlush(p *peer, h *wire.Header) {
	status := shm.StatusOK
	collect := func(w *window) {
		if e := w.errors[h.Src]; e != 0 {
			status = e
			delete(w.errors, h.Src)
		}
	}
	all := h.Tag == 1
	if all {
		for _, e := range r.hosted {
			if w := e.wins[h.Context]; w != nil {
				collect(w)
			}
		}
	} else if w := r.window(h.Context, h.Dst); w != nil {
		collect(w)
	} else {
		status = shm.StatusInvalid
	}
	if p.missed.take(h, all) {
		status = shm.StatusInvalid
	}
	r.answerFlush(p.id, h.A, status)
}

// missed has the accesses of a peer's ranks to windows that did not exist, for their next flush.
// The window may exist when that flush arrives.
type missed struct {
	list []miss
	more bool // there were more than missesMax: each flush fails from then on
}

type miss struct{ from, context, to uint32 }

// missesMax bounds the list of one peer. A correct program has no entry.
const missesMax = 64

// add records an access.
func (m *missed) add(h *wire.Header) {
	switch x := (miss{h.Src, h.Context, h.Dst}); {
	case slices.Contains(m.list, x):
	case len(m.list) == missesMax:
		m.more = true
	default:
		m.list = append(m.list, x)
	}
}

// take reports whether the flushing rank has missed the window on the rank that h names, or, if all
// is set, on any rank, and removes these entries, which the answer reports.
func (m *missed) take(h *wire.Header, all bool) bool {
	n := len(m.list)
	m.list = slices.DeleteFunc(m.list, func(x miss) bool {
		return x.from == h.Src && x.context == h.Context && (all || x.to == h.Dst)
	})
	return m.more || len(m.list) < n
}

// answerFlush emits a Flushed, unless the peer is in another generation.
func (r *Room) answerFlush(p link.Peer, request uint64, status shm.Status) {
	if r.channel.PeerState(p)&Ended != 0 {
		return
	}
	f := r.channel.Answer(p, wire.Flushed)
	f.Head.A, f.Head.B = request, uint64(status)
}
