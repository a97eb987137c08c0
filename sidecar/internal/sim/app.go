package sim

import (
	"fmt"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

type linkPeer = link.Peer

// app is a simulated application. It posts its operations in order, a few at a
// time, and checks every message that it gets.
type app struct {
	w        *world
	rank     uint32
	session  *session.Session
	control  *segment.Control
	silent   uint64 // sends that nobody tells the end of
	submit   *ring.Producer
	complete *ring.Consumer
	slab     []byte
	arena    []byte
	slabNext int
	next     int // bump allocation of the arena
	ops      []*operation
	extras   []*operation // of the plan: what is no message
	posted   int
	open     int
	burst    int // fewer operations are posted in one step
	failed   bool
	waits    bool             // it has not attached yet: others of its rank have not left
	dead     bool             // its process was killed, has attacked, or has left early
	deserts  float64          // when it leaves, in good order and in the middle; 0: never
	sent     map[sending]bool // of one that does: whose send has ended
	rude     int              // where its rude window is
	freed    bool             // and that it is not any more
	bulk     int              // of a fair job: where the busy rank's memory is
	seen     int              // of a reduction there, bytes that were there before the last turn
	assault  []shm.Descriptor // of an attack, those that are still to be submitted
	queue    []shm.Descriptor // descriptors beside those of operations, in order
	regrets  []uint32         // requests that are to be cancelled
	exposes  *exposing        // memory of its own; nil: it may not
}

// operation is one send or receive, or an act.
type operation struct {
	act              act
	after            *operation // posted only when this one has ended
	claim            bool       // a receive by matched probe
	claimed          bool       // whose message is taken
	req              uint32
	send             bool
	peer             uint32 // of a receive: AnySource for a wildcard
	tag              uint64
	ignore           uint64
	class            shm.Class
	flags            uint8
	seq              int    // position among the messages of its pair (and tag)
	payload          []byte // what is sent, or what must arrive
	want             map[[2]uint64][]byte
	addr             int // arena or slab place of the buffer
	room             int
	staged, total    int // bytes of chunks supplied, and to be supplied
	chunks           int // that are with the engine
	got              []byte
	ended            bool
	postedAt, overAt int64
	from             uint32 // source and tag of what a wildcard got
	fromTag          uint64
	lends            bool      // goes from or into exposed memory, where there is some
	exposure         *exposure // that it uses
	place            int       // of its bytes in the application's own memory
}

const (
	arenaBytes = 8 << 20
	chunk      = 16 << 10
	chunksFew  = 3
	burst      = 4  // of a usual application
	earlyPace  = 20 // how much slower applications are whose receives come first: connections are made meanwhile
)

// arenas are used again by later seeds: most of a seed's time would go into
// zeroing memory that it never uses. Those that are given back are zero.
var arenas = sync.Pool{New: func() any { b := aligned(arenaBytes); return &b }}

// giveBack ends the use of a's memory, by a's engine too.
func (a *app) giveBack() {
	clear(a.arena[:min(a.next, len(a.arena))])
	arenas.Put(&a.arena)
	a.exposes.giveBack()
}

func newApp(w *world, rank uint32) (*app, error) {
	g := segment.Geometry{SubmitEntries: 16, CompleteEntries: 16, SlabBytes: 512 << 10}
	c, err := segment.Format(aligned(g.Bytes()), g, rank)
	if err != nil {
		return nil, err
	}
	a := &app{w: w, rank: rank, burst: burst, control: c, slab: c.Slab(), arena: *arenas.Get().(*[]byte)}
	if a.session, err = session.New(c, a.arena, rank); err != nil {
		return nil, err
	}
	a.session.Features = shm.FeaturesAll &^ shm.FeaturePlace // it does not say what it waits for
	a.session.SetFree(a.poison)
	mem, n := c.SubmitRing()
	if a.submit, err = ring.NewProducer(mem, n); err == nil {
		mem, n = c.CompleteRing()
		a.complete, err = ring.NewConsumer(mem, n)
	}
	return a, err
}

// poison spoils the memory that the engine has given back: whoever still
// reaches for it reads, or is seen to have read, what nobody sent.
func (a *app) poison() error {
	if a.w.over {
		return nil
	}
	fillByte(a.arena[:min(a.next, len(a.arena))], 0xdd)
	fillByte(a.slab, 0xdd)
	return a.checkContext()
}

// take gives the next n bytes of the arena.
func (a *app) take(n int) int {
	off := a.next
	a.next += (n + 63) &^ 63
	if a.next > len(a.arena) {
		panic("the simulated application's arena is too small for its plan")
	}
	return off
}

func (a *app) done() bool {
	return a.dead || !a.waits && (a.posted == len(a.ops) || a.failed) && a.open == 0 && len(a.queue) == 0 && a.exposes.quiet()
}

func (a *app) state() string {
	text := fmt.Sprintf("%d of %d posted, %d open:", a.posted, len(a.ops), a.open)
	for _, o := range a.ops[:a.posted] {
		if !o.ended {
			text += fmt.Sprintf(" [send=%v peer=%d tag=%d class=%d bytes=%d]", o.send, int32(o.peer), o.tag, o.class, len(o.payload))
		}
	}
	return text
}

// step takes completions and posts what is next.
func (a *app) step() error {
	var d shm.Descriptor
	for a.complete.Pop(&d) {
		a.noteDone(&d)
		if err := a.handle(&d); err != nil {
			return fmt.Errorf("rank %d: %w", a.rank, err)
		}
	}
	a.complete.Release()
	for len(a.regrets) > 0 && a.w.rng.IntN(3) == 0 {
		a.queue = append(a.queue, shm.Descriptor{Op: shm.OpCancel, Req: a.regrets[0]})
		a.regrets = a.regrets[1:]
	}
	a.expose()
	for len(a.queue) > 0 {
		if ok, err := a.submit.Push(&a.queue[0]); !ok || err != nil {
			return err
		}
		a.queue = a.queue[1:]
	}
	// However many are open: a program that waits for a send before it posts
	// its receive may stand still by its own fault.
	for range a.w.rng.IntN(a.burst) {
		if a.w.early && a.w.rng.IntN(earlyPace) > 0 || a.exposes.paced() || a.w.rests.paused(a.w.net.now) {
			break
		}
		if a.posted == len(a.ops) || a.failed {
			break
		}
		o := a.ops[a.posted]
		free, err := a.submit.Free()
		if err != nil {
			return err
		}
		if free == 0 || o.after != nil && !o.after.ended {
			break
		}
		d := a.describe(o)
		if _, err := a.submit.Push(&d); err != nil {
			return err
		}
		a.posted++
		o.postedAt = a.w.net.now
		if _, is := o.act.(*cancelled); is {
			a.regrets = append(a.regrets, o.req)
		}
		if o.flags&shm.FlagSilent != 0 {
			o.ended = true
			a.noteSent(o)
			a.silent++
			continue
		}
		a.open++
		if o.send && o.class == shm.ClassStaged {
			o.total = len(o.payload)
			a.supply(o)
		}
	}
	return nil
}

// describe makes the descriptor of an operation and gives it its memory.
func (a *app) describe(o *operation) shm.Descriptor {
	if o.act != nil {
		d := o.act.describe(a)
		d.Req = o.req
		return d
	}
	d := shm.Descriptor{Op: shm.OpRecv, Req: o.req, Peer: o.peer, Tag: o.tag, Class: o.class, Flags: o.flags}
	n := len(o.payload)
	if !o.send {
		n = o.room
	}
	d.SetBody(0, uint64(n), o.ignore, 0)
	if o.send {
		d.Op = shm.OpSend
		if typ := typeOf(o.payload); typ != 0 {
			d.Flags, d.Status = d.Flags|shm.FlagTyped, typ
		}
	}
	if o.claim && !o.claimed {
		d.Op, d.Class = shm.OpMprobe, 0
		return d
	}
	if o.lends {
		a.placeExposed(o, n)
		d.Class = o.class
	}
	if o.class == shm.ClassSlab && a.slabNext+n > len(a.slab) { // it is used up: places are not used again
		o.class, d.Class = shm.ClassArena, shm.ClassArena
	}
	switch o.class {
	case shm.ClassInline:
		if o.send {
			d.SetInline(o.payload)
		} else {
			d.InlineLen = shm.InlineMax
		}
		return d
	case shm.ClassArena:
		o.addr = a.take(n)
		if o.send {
			copy(a.arena[o.addr:], o.payload)
		}
	case shm.ClassSlab:
		o.addr = a.slabNext
		a.slabNext += (n + 63) &^ 63
		if o.send {
			copy(a.slab[o.addr:], o.payload)
		}
	}
	d.SetBody(uint64(o.addr), uint64(n), o.ignore, 0)
	return d
}

func (a *app) handle(d *shm.Descriptor) error {
	if d.Op == shm.OpFailed {
		a.failed = true
		return nil
	}
	if d.Req >= a.exposeRequest() {
		return a.exposeEnded(d)
	}
	o := a.ops[d.Req]
	switch d.Op {
	case shm.OpMatched:
		if o.exposure != nil {
			a.w.net.lent.Copied++
		}
		o.total = len(o.payload)
		if !o.send {
			o.total = min(int(d.Len()), o.room)
		}
		a.supply(o)
	case shm.OpStaged:
		if !o.send && d.Len() > 0 {
			if int(d.Aux()) != len(o.got) {
				return fmt.Errorf("chunk at %d, want %d", d.Aux(), len(o.got))
			}
			o.got = append(o.got, a.arena[d.Addr():d.Addr()+d.Len()]...)
		}
		if d.Len() > 0 {
			a.chunkBack(o)
		}
	case shm.OpDone:
		return a.end(o, d)
	}
	return nil
}

// end handles the end of an operation.
func (a *app) end(o *operation, d *shm.Descriptor) error {
	if o.ended {
		return fmt.Errorf("request %d ended twice", d.Req)
	}
	if o.claim && !o.claimed && d.Status == shm.StatusOK {
		o.claimed = true
		r := a.describe(o)
		r.Op = shm.OpMrecv
		r.SetBody(uint64(o.addr), uint64(o.room), 0, d.Aux())
		a.queue = append(a.queue, r)
		return nil
	}
	o.ended, o.overAt = true, a.w.net.now
	a.open--
	if o.exposure != nil {
		o.exposure.open--
	}
	a.noteSent(o)
	if d.Status == shm.StatusPeerLeft {
		return a.checkDeserted(o, d)
	}
	if a.failed || d.Status == shm.StatusAborted || d.Status == shm.StatusPeerFailed {
		if !a.w.mayFail() {
			return fmt.Errorf("request %d ended with status %d and nothing has failed", d.Req, d.Status)
		}
		return nil
	}
	if o.act != nil {
		return o.act.ended(a, d)
	}
	if !o.send {
		return a.check(o, d)
	}
	if d.Status != shm.StatusOK {
		return fmt.Errorf("request %d ended with status %d", d.Req, d.Status)
	}
	// The memory is the application's again: scribble over it, so that
	// whoever still needs it is found out. (In a failed job nobody does.)
	a.scribble(o)
	return nil
}
