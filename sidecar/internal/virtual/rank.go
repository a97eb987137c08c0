package virtual

import (
	"fmt"
	"iter"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// Rank is a process of the job, as its program sees it. Its methods are for the program
// only. They panic if the engine refuses an operation: a wrong program measures nothing.
type Rank struct {
	Number uint32
	Arena  []byte // shared memory: offsets in it name buffers

	node     *node
	session  *session.Session
	submit   *ring.Producer
	complete *ring.Consumer
	queue    []shm.Descriptor
	ended    []bool // whether each request has ended
	unused   []uint32
	open     int
	waits    []Request

	next    func() (struct{}, bool)
	quit    func()
	yield   func(struct{}) bool
	over    bool
	until   float64 // virtual time at which Work ends, or AwaitOffer gives up
	offered func() bool
}

// Request is an operation in progress.
type Request uint32

const ringEntries = 1 << 10

func (w *World) addRank(number uint32, n *node) error {
	g := segment.Geometry{SubmitEntries: ringEntries, CompleteEntries: ringEntries, SlabBytes: 4096}
	c, err := segment.Format(make([]byte, g.Bytes()), g, number)
	if err != nil {
		return err
	}
	r := &Rank{Number: number, node: n, Arena: make([]byte, w.cfg.Arena)}
	if r.session, err = session.New(c, r.Arena, number); err != nil {
		return err
	}
	r.session.Features = shm.FeaturesAll &^ shm.FeaturePlace // the client does not report what it waits for
	mem, entries := c.SubmitRing()
	if r.submit, err = ring.NewProducer(mem, entries); err != nil {
		return err
	}
	mem, entries = c.CompleteRing()
	if r.complete, err = ring.NewConsumer(mem, entries); err != nil {
		return err
	}
	if err = n.engine.Attach(r.session); err != nil {
		return err
	}
	n.ranks = append(n.ranks, r)
	w.ranks = append(w.ranks, r)
	return nil
}

// start makes the program a coroutine: it runs while it has the node's CPU.
func (r *Rank) start(program func(*Rank)) {
	r.next, r.quit = iter.Pull(func(yield func(struct{}) bool) {
		r.yield = yield
		program(r)
	})
}

func (r *Rank) stop() {
	if r.quit != nil {
		r.quit()
	}
}

// ready reports whether the program can continue.
func (r *Rank) ready() bool {
	if r.over || r.next == nil || r.offered != nil && r.until > r.node.now && !r.offered() {
		return false
	}
	for _, q := range r.waits {
		if !r.ended[q] {
			return false
		}
	}
	return true
}

func (r *Rank) resume() {
	r.waits = r.waits[:0]
	if _, more := r.next(); !more {
		r.over = true
	}
	for len(r.queue) > 0 {
		if ok, err := r.submit.Push(&r.queue[0]); !ok || err != nil {
			break
		}
		r.queue = r.queue[1:]
	}
}

// collect handles completions.
func (r *Rank) collect() error {
	var d shm.Descriptor
	for r.complete.Pop(&d) {
		if d.Op != shm.OpDone {
			continue
		}
		if d.Status != shm.StatusOK {
			return fmt.Errorf("virtual: rank %d: request %d ended with status %d", r.Number, d.Req, d.Status)
		}
		r.ended[d.Req] = true
		r.open--
	}
	r.complete.Release()
	return nil
}

// post submits an operation.
func (r *Rank) post(d shm.Descriptor) Request {
	if n := len(r.unused); n > 0 {
		d.Req, r.unused = r.unused[n-1], r.unused[:n-1]
		r.ended[d.Req] = false
	} else {
		d.Req = uint32(len(r.ended))
		r.ended = append(r.ended, false)
	}
	r.open++
	if ok, err := r.submit.Push(&d); !ok || err != nil {
		r.queue = append(r.queue, d)
	}
	return Request(d.Req)
}

// Wait blocks until all requests have ended.
func (r *Rank) Wait(requests ...Request) {
	r.waits = append(r.waits[:0], requests...)
	for !r.ready() {
		if !r.yield(struct{}{}) {
			panic("virtual: the job has ended")
		}
		r.waits = append(r.waits[:0], requests...)
	}
	r.waits = r.waits[:0]
	for _, q := range requests {
		r.unused = append(r.unused, uint32(q))
	}
}

func (r *Rank) message(op shm.Op, peer uint32, tag uint64, off, n int) Request {
	d := shm.Descriptor{Op: op, Peer: peer, Tag: tag, Class: shm.ClassArena}
	d.SetBody(uint64(off), uint64(n), 0, 0)
	return r.post(d)
}

// Send starts sending n bytes at off.
func (r *Rank) Send(to uint32, tag uint64, off, n int) Request {
	return r.message(shm.OpSend, to, tag, off, n)
}

// Recv starts receiving up to n bytes at off.
func (r *Rank) Recv(from uint32, tag uint64, off, n int) Request {
	return r.message(shm.OpRecv, from, tag, off, n)
}

// Now returns the time of this rank's node, in nanoseconds.
func (r *Rank) Now() float64 { return r.node.now }

// Compute spends CPU time of the node for the program.
func (r *Rank) Compute(ns float64) { r.node.now += ns }

// Work spends the time of Compute on a CPU of this rank's own: the node's other ranks and its
// engine go on meanwhile.
func (r *Rank) Work(ns float64) {
	r.until = r.node.now + ns
	r.offered = func() bool { return false }
	r.node.inbox.add(r.until, func(link.Sink) error { return nil })
	r.Wait()
	r.offered = nil
}

// AwaitOffer blocks until a peer has offered a total number of receives to this rank
// (P§5.4), or until a timeout. A sender of paper 001's PUT waits for the offer; this engine
// announces the message instead, and the program has to wait.
func (r *Rank) AwaitOffer(peer uint32, offers int, most float64) {
	r.until = r.node.now + most
	r.offered = func() bool { return r.node.offers[[2]uint32{peer, r.Number}] >= offers }
	r.node.inbox.add(r.until, func(link.Sink) error { return nil })
	r.Wait()
	r.offered = nil
}

// windowNumber is the number of the one window of a job.
const windowNumber = 9

// Window exposes n bytes at off to all ranks, for Put and Get.
func (r *Rank) Window(off, n int) Request {
	d := shm.Descriptor{Op: shm.OpWin, Context: windowNumber, Class: shm.ClassArena}
	d.SetBody(uint64(off), uint64(n), 0, 0)
	return r.post(d)
}

// Put copies n bytes at off to the target's window.
func (r *Rank) Put(target uint32, off, n int) Request { return r.access(shm.OpPut, target, off, n) }

// Get copies n bytes of the target's window to off.
func (r *Rank) Get(target uint32, off, n int) Request { return r.access(shm.OpGet, target, off, n) }

// GetAt does what Get does, from an offset in the target's window.
func (r *Rank) GetAt(target uint32, off, at, n int) Request {
	return r.accessAt(shm.OpGet, target, off, at, n)
}

func (r *Rank) access(op shm.Op, target uint32, off, n int) Request {
	return r.accessAt(op, target, off, 0, n)
}

func (r *Rank) accessAt(op shm.Op, target uint32, off, at, n int) Request {
	d := shm.Descriptor{Op: op, Context: windowNumber, Peer: target, Class: shm.ClassArena}
	d.SetBody(uint64(off), uint64(n), uint64(at), 0)
	return r.post(d)
}

// Flush ends when all accesses of this rank at target are complete.
func (r *Rank) Flush(target uint32) Request {
	return r.post(shm.Descriptor{Op: shm.OpFlush, Context: windowNumber, Peer: target})
}

// Collective starts a collective of all ranks: kind and algorithm of the shared-memory
// contract, blocks of n bytes, at in and out.
func (r *Rank) Collective(kind uint8, root uint32, n, in, inBytes, out, outBytes int) Request {
	b := shm.CollBlock{
		Kind: kind, Type: shm.TypeUint8, Op: shm.ReduceSum, Flags: shm.CollCommutative, Root: root, Count: uint64(n), Elem: 1,
		In: uint64(in), InBytes: uint64(inBytes), Out: uint64(out), OutBytes: uint64(outBytes),
	}
	b.ScratchBytes = shm.CollScratch[int](&b, int(r.Number), len(r.node.world.ranks), nil)
	// The last part of the arena is for parameters and scratch, at a fixed offset.
	block := len(r.Arena) - (shm.CollBlockBytes+int(b.ScratchBytes)+63)&^63
	b.Scratch = uint64(block + shm.CollBlockBytes)
	b.Encode(r.Arena[block:])
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(block), shm.CollBlockBytes, 0, 0)
	return r.post(d)
}

// Barrier waits for all ranks.
func (r *Rank) Barrier() { r.Wait(r.Collective(shm.CollBarrier, 0, 0, 0, 0, 0, 0)) }
