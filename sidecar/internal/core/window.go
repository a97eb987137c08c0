package core

import (
	"fmt"
	"slices"

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
	session *session
	mem     link.Ref
	errors  map[uint32]shm.Status // by origin rank: what went wrong since its last flush
	// Lock state: how often each rank holds it, or the one that holds it
	// exclusively, and who waits.
	holders   map[uint32]int
	since     map[uint32]int64 // when each of them got it
	exclusive bool
	waiting   queue.FIFO[lockWaiter]
	closed    bool // gone: nobody gets its lock any more
	place     int  // in Core.windows
	tokens    epoch.Tokens
	exposed   uint64 // its record in Core.exposures; 0: no peer has reached for it or written to it
}

// Bounds of what applications and peers may have open.
const (
	windowLimit = 4096  // windows that one application exposes
	lockLimit   = 65536 // locks that the ranks of one peer wait for
)

// window finds what rank exposes under a number; nil: nothing.
func (c *Core) window(number, rank uint32) *window {
	if int(rank) >= len(c.endpoints) || c.endpoints[rank] == nil {
		return nil
	}
	return c.endpoints[rank].wins[number]
}

func (c *Core) submitWin(s *session, d *shm.Descriptor) error {
	mem := link.Ref{}
	if d.Len() > 0 {
		var err error
		if mem, err = s.Memory(d.Class, d.Addr(), d.Len()); err != nil {
			return err
		}
	}
	e := s.endpoint
	if e.wins[d.Context] != nil || len(e.wins) >= windowLimit {
		return fmt.Errorf("window %d exists, or there are %d of them", d.Context, len(e.wins))
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	if e.wins == nil {
		e.wins = map[uint32]*window{}
	}
	w := &window{session: s, mem: mem, errors: map[uint32]shm.Status{}, holders: map[uint32]int{}, since: map[uint32]int64{}, place: len(c.windows)}
	e.wins[d.Context], c.windows = w, append(c.windows, w)
	c.ranks.Finish(s.ID(), d.Req, shm.StatusOK)
	return nil
}

func (c *Core) submitWinFree(s *session, d *shm.Descriptor) error {
	w := s.endpoint.wins[d.Context]
	if w == nil {
		return fmt.Errorf("no window has the number %d", d.Context)
	}
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	if w.tokens.Waiting() { // its rank itself waits for others there
		c.ranks.Finish(s.ID(), d.Req, shm.StatusInvalid)
		return nil
	}
	delete(s.endpoint.wins, d.Context)
	c.closeWindow(w)
	if !c.conceal(w, d.Req+1) {
		c.ranks.Finish(s.ID(), d.Req, shm.StatusOK)
	}
	return nil
}

// exposedPart finds the part of a window that a frame names. Mistakes of the origin
// are kept for its next flush.
func (c *Core) exposedPart(p *peer, h *wire.Header, n uint64) (link.Ref, *window) {
	w := c.window(h.Context, h.Dst)
	if w == nil {
		if h.Type == wire.Put || h.Type == wire.Acc { // nothing else tells of them
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

// placeAccess finds where the payload of a Put or Acc goes: the window itself,
// or the pool, since an accumulate has to be combined.
func (c *Core) placeAccess(p *peer, h *wire.Header) error {
	if _, err := c.hostedBy(p, h); err != nil {
		return err
	}
	ref, w := c.exposedPart(p, h, uint64(h.Length))
	if w == nil {
		c.discard(p, h)
		return nil
	}
	if h.Type == wire.Put {
		c.exposureOf(w, h.Dst).Placing()
		c.target(p, h, placePut, w.exposed, ref, w.session)
		return nil
	}
	typ := coll.Type(h.A >> 8)
	if coll.Valid(coll.Op(uint8(h.A)), typ) != nil || uint64(h.Length)%uint64(typ.Size()) != 0 || h.Length > accFragment {
		w.errors[h.Src] = shm.StatusUnsupported
		c.discard(p, h)
		return nil
	}
	tmp, ok := c.pool.passing(uint64(h.Length))
	if !ok {
		return fmt.Errorf("%w: more unexpected data than granted", link.ErrProtocol)
	}
	c.target(p, h, placeAcc, 0, tmp, nil)
	return nil
}

func (c *Core) putPlaced(in *inbound) {
	c.stats.OneSided.Add(uint64(in.head.Length))
	c.landed(in.id)
}

func (c *Core) accPlaced(p *peer, in *inbound) {
	// The window may have gone while the payload arrived.
	if ref, w := c.exposedPart(p, &in.head, uint64(in.head.Length)); w != nil {
		if coll.Apply(coll.Op(uint8(in.head.A)), coll.Type(in.head.A>>8), c.ports.Bytes(ref), c.ports.Bytes(in.dst)) != nil {
			w.errors[in.head.Src] = shm.StatusUnsupported
		}
		c.stats.OneSided.Add(uint64(in.head.Length))
	}
	c.pool.passed(in.dst)
}

// onOneSided serves the requests and answers that carry no bulk payload.
func (c *Core) onOneSided(p *peer, h *wire.Header, payload []byte) error {
	switch h.Type {
	case wire.Fetched, wire.Locked, wire.Flushed:
		return c.onAnswer(p, h, payload)
	case wire.Expose:
		return c.onExpose(p, h)
	case wire.Exposed:
		return c.onExposed(p, h, payload)
	case wire.Conceal:
		return c.onConceal(p, h)
	case wire.Concealed:
		return c.onConcealed(p, h)
	}
	if _, err := c.hostedBy(p, h); err != nil {
		return err
	}
	switch h.Type {
	case wire.Get:
		return c.onGet(p, h)
	case wire.Fetch:
		c.onFetch(p, h, payload)
	case wire.Lock:
		return c.onLock(p, h)
	case wire.Unlock:
		c.onUnlock(p, h)
	case wire.Flush:
		c.onFlush(p, h)
	case wire.Post:
		c.onEpoch(h, epoch.Post)
	case wire.Complete:
		c.onEpoch(h, epoch.Complete)
	default:
		return fmt.Errorf("%w: unexpected %v", link.ErrProtocol, h.Type)
	}
	return nil
}

// onFetch combines one element and answers with what was there before.
func (c *Core) onFetch(p *peer, h *wire.Header, payload []byte) {
	typ, op := coll.Type(h.B>>8), coll.Op(uint8(h.B))
	size, args := typ.Size(), 1
	if op == 0 {
		args = 2
	}
	if size == 0 || len(payload) != args*size || op != 0 && coll.Valid(op, typ) != nil {
		c.answerFlush(p, h.A, shm.StatusUnsupported)
		return
	}
	ref, w := c.exposedPart(p, h, uint64(size))
	if w == nil {
		c.answerFlush(p, h.A, shm.StatusInvalid)
		return
	}
	c.stats.OneSided.Add(uint64(size))
	mem := c.ports.Bytes(ref)
	f := c.answer(p, wire.Fetched)
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

// onFlush answers after everything that came before it: frames are carried
// out in order (P§5.6). Tag 1 asks for all windows of that number here.
func (c *Core) onFlush(p *peer, h *wire.Header) {
	status := shm.StatusOK
	collect := func(w *window) {
		if e := w.errors[h.Src]; e != 0 {
			status = e
			delete(w.errors, h.Src)
		}
	}
	if h.Tag == 1 {
		for _, e := range c.hosted {
			if w := e.wins[h.Context]; w != nil {
				collect(w)
			}
		}
		if p.missed.any(h) {
			status = shm.StatusInvalid
		}
	} else if w := c.window(h.Context, h.Dst); w != nil {
		collect(w)
	} else {
		p.missed.told(h)
		status = shm.StatusInvalid
	}
	c.answerFlush(p, h.A, status)
}

// missed are accesses of a peer's ranks to windows that are not here, of which a flush of all
// ranks tells; a flush of one rank says so of every window that is not here.
type missed struct {
	list []miss
	more bool // than missesMax: all flushes of all ranks fail from now on
}

type miss struct{ from, context, to uint32 }

// missesMax bounds those of one peer. A right program has none.
const missesMax = 64

func (m *missed) add(h *wire.Header) {
	switch x := (miss{h.Src, h.Context, h.Dst}); {
	case slices.Contains(m.list, x):
	case len(m.list) == missesMax:
		m.more = true
	default:
		m.list = append(m.list, x)
	}
}

// any reports whether there are some of a rank that flushes a window of all ranks, which is told
// of them by that.
func (m *missed) any(h *wire.Header) bool {
	n := len(m.list)
	m.list = slices.DeleteFunc(m.list, func(x miss) bool { return x.from == h.Src && x.context == h.Context })
	return m.more || len(m.list) < n
}

// told forgets those of which a flush of one rank tells.
func (m *missed) told(h *wire.Header) {
	m.list = slices.DeleteFunc(m.list, func(x miss) bool { return x == miss{h.Src, h.Context, h.Dst} })
}

func (c *Core) answerFlush(p *peer, request uint64, status shm.Status) {
	if c.over(p) {
		return
	}
	f := c.answer(p, wire.Flushed)
	f.Head.A, f.Head.B = request, uint64(status)
}
