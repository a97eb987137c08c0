package outrigger

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// allFree checks that no ended operation has kept memory of the slab or of the arena.
func allFree(t *testing.T, s *Session) {
	t.Helper()
	b := &s.slab
	if len(b.chunks) != 2*b.half || b.sends != 0 || b.receives != 0 || b.borrowed != 0 {
		t.Fatalf("%d of %d chunks are free, sends hold %d, receives %d, and %d bytes are borrowed", len(b.chunks), 2*b.half, b.sends, b.receives, b.borrowed)
	}
}

// chunks counts the chunks that arrive for a request.
func (f *fake) chunks(req uint32) (n int) {
	for d, ok := f.poll(); ok; d, ok = f.poll() {
		if d.Op == shm.OpStage && d.Req == req {
			n++
		}
	}
	return n
}

// meets reports that a receive has matched a message of n bytes.
func (f *fake) meets(req uint32, n uint64) {
	d := shm.Descriptor{Op: shm.OpMatched, Req: req, Peer: 1}
	d.SetBody(0, n, 0, 0)
	f.tell(d)
}

// TestWhatMovesGetsAChunk: with any number of operations that wait forever, and messages of
// any size, a matched send and a matched receive get memory. Otherwise two ranks that exchange
// messages could wait for each other.
func TestWhatMovesGetsAChunk(t *testing.T) {
	for _, size := range []int{1 << 18, 1 << 20, 4 << 20} {
		s, f := attachTo(t, shape{slab: size})
		if _, err := Alloc[byte](s, len(s.arenaMem)); err != nil {
			t.Fatal(err)
		}
		large := make([]byte, 1<<20)
		start := func(r Request, err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for tag := range 40 { // these operations never end
			start(Isend(s.World(), large, 1, tag))
			start(Irecv(s.World(), large[:s.slab.chunkBytes], 1, tag))
			start(Isend(s.World(), large[:s.slab.chunkBytes], 1, tag))
			start(Irecv(s.World(), large[:40], 1, tag))
			f.chunks(0) // makes room in the ring
		}
		for tag := range 3 {
			start(Irecv(s.World(), large, 1, 100+tag))
			r := f.next(shm.OpRecv)
			f.meets(r.Req, uint64(len(large)))
			settle(t, s)
			if n := f.chunks(r.Req); tag == 0 && n == 0 {
				t.Errorf("slab of %d: a receive gets no chunk", size)
			}
		}
		start(Isend(s.World(), large, 1, 100))
		d := f.next(shm.OpSend)
		f.matched(&d, uint64(len(large)))
		settle(t, s)
		if f.chunks(d.Req) == 0 {
			t.Errorf("slab of %d: a send that was asked for gets no chunk", size)
		}
	}
}

// TestOneSideDoesNotWaitForTheOther: a send that the receiver has asked for gets the next
// chunk of the sends, although a receive has waited longer for a chunk of the receives, and
// the reverse. Otherwise two ranks whose receives wait for the other's sends would wait
// forever.
func TestOneSideDoesNotWaitForTheOther(t *testing.T) {
	for first := range 2 {
		s, f := attachTo(t, shape{slab: 1 << 18})
		if _, err := Alloc[byte](s, len(s.arenaMem)); err != nil {
			t.Fatal(err)
		}
		large := make([]byte, 1<<20)
		start := func(receives bool) uint32 {
			begin, op := Isend[byte], shm.OpSend
			if receives {
				begin, op = Irecv[byte], shm.OpRecv
			}
			if _, err := begin(s.World(), large, 1, 1); err != nil {
				t.Fatal(err)
			}
			req := f.next(op).Req
			f.chunks(0)
			f.meets(req, uint64(len(large)))
			settle(t, s)
			f.chunks(0) // makes room in the ring
			return req
		}
		var all [2][3]uint32
		for i := range 3 {
			all[0][i] = start(first == 0)
		}
		for i := range 3 {
			all[1][i] = start(first != 0)
		}
		for _, side := range []int{1, 0} {
			f.done(all[side][0], shm.StatusOK, uint64(len(large)))
			settle(t, s)
			if f.chunks(all[side][1]) == 0 {
				t.Errorf("first %d: the operation of side %d that waits for a chunk of its side gets none", first, side)
			}
		}
	}
}

// TestTruncatedReceives: a truncated receive has the beginning of the message, for every way
// of transfer.
func TestTruncatedReceives(t *testing.T) {
	for _, n := range []int{40, 4 << 10, 32 << 10} {
		s, f := attachTo(t, shape{})
		buf := make([]byte, n)
		r, err := Irecv(s.World(), buf, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpRecv)
		mem := f.memory(&d)
		mem[0], mem[n-1] = 7, 8
		f.done(d.Req, shm.StatusTruncated, uint64(n+1))
		if _, err = r.Wait(t.Context()); !errors.Is(err, ErrTruncated) || buf[0] != 7 || buf[n-1] != 8 {
			t.Errorf("%d bytes: %v, and the buffer has %d to %d", n, err, buf[0], buf[n-1])
		}
		allFree(t, s)
	}
}

// TestLengthsOfALyingSidecar: a length that is larger than possible is reduced or is an error.
func TestLengthsOfALyingSidecar(t *testing.T) {
	for _, n := range []int{4 << 10, 32 << 10, 256 << 10} {
		for _, lie := range []uint64{0, 1 << 16, 1<<16 + 1, 1 << 31, 1 << 63, 1<<64 - 1} {
			for _, op := range []shm.Op{shm.OpDone, shm.OpMatched, shm.OpStaged} {
				s, f := attachTo(t, shape{})
				if _, err := Irecv(s.World(), make([]byte, n), 1, 1); err != nil {
					t.Fatal(err)
				}
				d := f.next(shm.OpRecv)
				if d.Class == shm.ClassStaged {
					f.meets(d.Req, uint64(n))
					settle(t, s)
				}
				said := shm.Descriptor{Op: op, Req: d.Req, Peer: 1}
				said.SetBody(d.Addr(), lie, 0, 0)
				if op == shm.OpStaged && d.Class == shm.ClassStaged {
					k := f.next(shm.OpStage)
					said.Class = k.Class
					said.SetBody(k.Addr(), k.Len(), lie, 0)
				}
				f.tell(said)
				s.mu.Lock()
				_ = s.progress() // an error is allowed, a panic is not
				s.mu.Unlock()
				f.hangUp()
			}
		}
	}
}

// exchange is a session with operations that a fake sidecar ends in random order.
type exchange struct {
	t    *testing.T
	s    *Session
	f    *fake
	r    *rand.Rand
	open []shm.Descriptor
	kind map[uint32]Request
}

func (x *exchange) start() {
	sizes := []int{1, 40, 9 << 10, 64 << 10, 65<<10 + 1, 300 << 10, 1 << 20, 3 << 20}
	buf := make([]byte, sizes[x.r.IntN(len(sizes))])
	begin := []func(*Comm, []byte, int, int) (Request, error){Isend[byte], Issend[byte], Irecv[byte]}[x.r.IntN(3)]
	q, err := begin(x.s.World(), buf, 1, 1)
	if err != nil {
		x.t.Fatal(err)
	}
	x.listen()
	if q != (Request{}) {
		x.kind[x.open[len(x.open)-1].Req] = q
	}
}

// listen records the open operations, without their chunks.
func (x *exchange) listen() {
	for d, ok := x.f.poll(); ok; d, ok = x.f.poll() {
		if d.Op != shm.OpStage && d.Flags&shm.FlagSilent == 0 {
			x.open = append(x.open, d)
		}
	}
}

func (x *exchange) step(d *shm.Descriptor, i int) {
	switch status := shm.Status(x.r.IntN(3)); {
	case d.Class == shm.ClassStaged && x.r.IntN(2) == 0:
		x.f.meets(d.Req, d.Len())
	case d.Op != shm.OpRecv && status == shm.StatusTruncated:
	default:
		x.f.done(d.Req, status, min(d.Len(), 1<<20))
		x.open = append(x.open[:i], x.open[i+1:]...)
		if q, ok := x.kind[d.Req]; ok {
			_, _ = q.Wait(x.t.Context()) // the status of the completion is random
			delete(x.kind, d.Req)
		}
	}
	settle(x.t, x.s)
	x.listen()
}

// TestChunksAreCounted: for any order of ends, each side has at most its half of the slab's
// chunks, and at the end all memory is free.
func TestChunksAreCounted(t *testing.T) {
	for seed := range uint64(12) {
		s, f := attachTo(t, shape{slab: 1 << (18 + seed%4), arena: 1 << (12 + seed)})
		x := &exchange{t: t, s: s, f: f, r: rand.New(rand.NewPCG(seed, 1)), kind: map[uint32]Request{}}
		for range 300 {
			if len(x.open) == 0 || len(x.open) < 40 && x.r.IntN(2) == 0 {
				x.start()
				continue
			}
			i := x.r.IntN(len(x.open))
			d := x.open[i]
			if x.step(&d, i); s.slab.sends > s.slab.half || s.slab.receives > s.slab.half {
				t.Fatalf("seed %d: sends hold %d chunks and receives %d, of which half are %d", seed, s.slab.sends, s.slab.receives, s.slab.half)
			}
		}
		for len(x.open) > 0 {
			d := x.open[0]
			x.f.done(d.Req, shm.StatusCancelled, 0)
			x.open = x.open[1:]
			settle(t, s)
			x.listen()
		}
		allFree(t, s)
	}
}
