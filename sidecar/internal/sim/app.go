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

// app is a simulated application. It posts its operations in order, a few at a time, and
// checks every message that it receives.
type app struct {
	w           *world
	rank        uint32
	session     *session.Session
	control     *segment.Control
	silent      uint64 // sends without a completion
	submit      *ring.Producer
	complete    *ring.Consumer
	slab        []byte
	arena       []byte
	slabNext    int
	next        int // bump allocation of the arena
	ops         []*operation
	extras      []*operation // operations of the plan that are no messages
	posted      int
	open        int
	burst       int // upper bound of the operations posted in one step
	failed      bool
	waits       bool             // not attached yet: the previous application of the rank has not left
	dead        bool             // the rank's process was killed, has attacked, or has left early
	leavesAt    float64          // progress of the job at which the rank leaves early, with a Goodbye; 0: the rank stays
	sent        map[sending]bool // messages whose sends have ended, if the rank leaves early
	misuse      int              // arena offset of the application's misused window
	freed       bool             // the misused window is freed
	bulk        int              // arena offset of the busy rank's memory in a fair job
	seen        int              // bytes of the result of a fair job's reduction before the last turn
	unsubmitted []shm.Descriptor // descriptors of an attack that are still to be submitted
	queue       []shm.Descriptor // descriptors to submit in addition to those of operations, in order
	toCancel    []uint32         // requests to cancel
	exposures   *exposedMemory   // memory that it may expose; nil: none
}

// operation is a send, a receive, or an act.
type operation struct {
	act              act
	after            *operation // operation that must end before this one is posted
	claim            bool       // a receive by matched probe
	claimed          bool       // the operation's message is matched
	req              uint32
	send             bool
	peer             uint32 // AnySource: a receive by wildcard
	tag              uint64
	ignore           uint64
	class            shm.Class
	flags            uint8
	seq              int    // position among the messages of its pair (and tag)
	payload          []byte // bytes to send, or bytes that must arrive
	want             map[[2]uint64][]byte
	addr             int // offset of the buffer in arena or slab
	room             int
	staged, total    int // bytes supplied in chunks so far, and bytes to supply in all
	chunks           int // chunks that the engine has
	got              []byte
	ended            bool
	postedAt, overAt int64
	from             uint32 // source and tag of the message that a wildcard received
	fromTag          uint64
	lends            bool      // uses exposed memory if there is some
	exposure         *exposure // the exposure that it uses
	offset           int       // offset of its bytes in the application's own memory
}

const (
	arenaBytes = 8 << 20
	chunk      = 16 << 10
	chunksFew  = 3
	burst      = 4 // of a usual application
	// earlyPace is the factor by which applications are slower if receives are posted first,
	// so that connections are made before the sends.
	earlyPace = 20
)

// arenas holds arenas for later seeds: to zero a new one, most of which is not used, would
// take most of a seed's time. All bytes of an arena in the pool are zero.
var arenas = sync.Pool{New: func() any { b := aligned(arenaBytes); return &b }}

// release returns a's memory to the pools. Its engine must be closed.
func (a *app) release() {
	clear(a.arena[:min(a.next, len(a.arena))])
	arenas.Put(&a.arena)
	a.exposures.release()
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
	a.session.Features = shm.FeaturesAll &^ shm.FeaturePlace // the client does not report what it waits for
	a.session.SetFree(a.poison)
	mem, n := c.SubmitRing()
	if a.submit, err = ring.NewProducer(mem, n); err == nil {
		mem, n = c.CompleteRing()
		a.complete, err = ring.NewConsumer(mem, n)
	}
	return a, err
}

// poison overwrites the memory that the engine has released, so that a later access by the
// engine is found.
func (a *app) poison() error {
	if a.w.over {
		return nil
	}
	fillByte(a.arena[:min(a.next, len(a.arena))], 0xdd)
	fillByte(a.slab, 0xdd)
	return a.checkContext()
}

// alloc returns the offset of the next n bytes of the arena.
func (a *app) alloc(n int) int {
	off := a.next
	a.next += (n + 63) &^ 63
	if a.next > len(a.arena) {
		panic("the simulated application's arena is too small for its plan")
	}
	return off
}

func (a *app) done() bool {
	return a.dead || !a.waits && (a.posted == len(a.ops) || a.failed) && a.open == 0 && len(a.queue) == 0 && a.exposures.idle()
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

// step handles completions and posts the next operations.
func (a *app) step() error {
	var d shm.Descriptor
	for a.complete.Pop(&d) {
		a.noteDone(&d)
		if err := a.handle(&d); err != nil {
			return fmt.Errorf("rank %d: %w", a.rank, err)
		}
	}
	a.complete.Release()
	for len(a.toCancel) > 0 && a.w.rng.IntN(3) == 0 {
		a.queue = append(a.queue, shm.Descriptor{Op: shm.OpCancel, Req: a.toCancel[0]})
		a.toCancel = a.toCancel[1:]
	}
	a.expose()
	for len(a.queue) > 0 {
		if ok, err := a.submit.Push(&a.queue[0]); !ok || err != nil {
			return err
		}
		a.queue = a.queue[1:]
	}
	// The number of open operations is not bounded: a program that waits for a send before
	// it posts its receive may deadlock, which is an error of the program.
	for range a.w.rng.IntN(a.burst) {
		if a.w.early && a.w.rng.IntN(earlyPace) > 0 || a.exposures.paced() || a.w.sleep.paused(a.w.net.now) {
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
			a.toCancel = append(a.toCancel, o.req)
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

// describe returns the descriptor of an operation and allocates its memory.
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
	if o.class == shm.ClassSlab && a.slabNext+n > len(a.slab) { // the slab is used up: its memory is not reused
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
		o.addr = a.alloc(n)
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
		return a.endOperation(o, d)
	}
	return nil
}

// endOperation handles the end of an operation.
func (a *app) endOperation(o *operation, d *shm.Descriptor) error {
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
		return a.checkPeerLeft(o, d)
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
	// The memory is the application's again: overwrite it, so that a later use by an engine
	// is found.
	a.overwrite(o)
	return nil
}
