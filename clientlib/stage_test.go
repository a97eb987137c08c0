package outrigger

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// TestChunksInOrderWhenRingIsFull: the chunks of a message stay in order if the submission
// ring is full while chunks are returned.
func TestChunksInOrderWhenRingIsFull(t *testing.T) {
	s, f := attachTo(t, shape{submit: 16})
	const piece = pieceBytes * pieceMost
	msg := make([]byte, piece*12)
	for i := range msg {
		msg[i] = byte(i / piece)
	}
	if _, err := Isend(s.World(), msg, 1, 1); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpSend)
	var lent []shm.Descriptor
	for range stageDepth {
		lent = append(lent, f.next(shm.OpStage))
	}
	// Fill the ring, then return all chunks: the next ones find no free entry.
	for range 15 {
		if _, err := Irecv(s.World(), make([]byte, 8), 1, 5); err != nil {
			t.Fatal(err)
		}
	}
	for i := range lent {
		f.returnBlock(&lent[i], lent[i].Len(), 0)
	}
	over := make(chan error)
	go func() {
		for { // as a wait does: chunks without a free entry are submitted by a later poll
			s.mu.Lock()
			err := s.progress()
			more := s.todo.any()
			s.mu.Unlock()
			if err != nil || !more {
				over <- err
				return
			}
			wake.Yield()
		}
	}()
	time.Sleep(50 * time.Millisecond) // time for the client to find the ring full
	for want := byte(stageDepth); want < 2*stageDepth; {
		d, ok := f.poll()
		if !ok || d.Op != shm.OpStage {
			continue
		}
		if got := f.memory(&d)[0]; got != want {
			t.Fatalf("chunk %d of the message came, want %d", got, want)
		}
		want++
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
}

// TestCancelledSendFreesChunks: chunks that the engine has returned, and chunks that it never
// took, are free after the end of a cancelled send.
func TestCancelledSendFreesChunks(t *testing.T) {
	for _, returned := range []int{0, 2, stageDepth} {
		s, f := attachTo(t, shape{})
		free, used := len(s.slab.chunks), arenaInUse(s)
		r, err := Issend(s.World(), make([]byte, 1<<20), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpSend)
		var lent []shm.Descriptor
		for range stageDepth {
			lent = append(lent, f.next(shm.OpStage))
		}
		if err := r.Cancel(); err != nil {
			t.Fatal(err)
		}
		f.next(shm.OpCancel)
		for i := range lent[:returned] {
			f.returnBlock(&lent[i], lent[i].Len(), 0)
			settle(t, s)
		}
		f.done(d.Req, shm.StatusCancelled, 0)
		if _, err := r.Wait(t.Context()); !errors.Is(err, ErrCancelled) {
			t.Fatal(err)
		}
		if len(s.slab.chunks) != free || arenaInUse(s) != used {
			t.Fatalf("%d of %d chunks are free, and %d bytes of the arena lost", len(s.slab.chunks), free, arenaInUse(s)-used)
		}
	}
}

// TestSendsWaitForChunks: sends of private memory for which there are no chunks are announced
// like all others. The send that the receiver asks for goes first, regardless of the memory
// that earlier sends hold.
func TestSendsWaitForChunks(t *testing.T) {
	s, f := attachTo(t, shape{})
	if _, err := Alloc[byte](s, len(s.arenaMem)); err != nil {
		t.Fatal(err)
	}
	const sends, n = 3000, pieceBytes * 2
	msg := make([]byte, n)
	var requests []Request
	var announced []shm.Descriptor
	for tag := range sends {
		r, err := Isend(s.World(), msg, 1, tag)
		if err != nil {
			t.Fatalf("send %d: %v", tag, err)
		}
		requests = append(requests, r)
		for d, ok := f.poll(); ok; d, ok = f.poll() {
			if d.Op == shm.OpSend {
				announced = append(announced, d)
			}
		}
	}
	if len(announced) != sends {
		t.Fatalf("%d sends were announced, %d started", len(announced), sends)
	}
	for i := sends - 1; i > sends-100; i-- {
		d := announced[i]
		f.matched(&d, n)
		settle(t, s)
		for range n / pieceBytes {
			k := f.next(shm.OpStage)
			if k.Req != d.Req {
				t.Fatalf("a chunk of request %d came, want one of %d, which was asked for", k.Req, d.Req)
			}
			f.returnBlock(&k, k.Len(), 0)
			settle(t, s)
		}
		f.done(d.Req, shm.StatusOK, n)
		if _, err := requests[i].Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.quiet()
}

// TestSendsLeaveTheArena: sends that no receive has matched leave most of the arena to the
// application.
func TestSendsLeaveTheArena(t *testing.T) {
	s, f := attachTo(t, shape{arena: 8 << 20})
	for tag := range 200 {
		if _, err := Isend(s.World(), make([]byte, 1<<20), 1, tag); err != nil {
			t.Fatal(err)
		}
		for _, ok := f.poll(); ok; _, ok = f.poll() {
		}
	}
	if n := arenaInUse(s); n > len(s.arenaMem)/2 {
		t.Fatalf("200 sends hold %d bytes of the arena's %d", n, len(s.arenaMem))
	}
}

// TestStarvedReceiveGoesOn: a receive that finds no free chunk continues when another
// operation returns one.
func TestStarvedReceiveGoesOn(t *testing.T) {
	s, f := attachTo(t, shape{})
	if _, err := Alloc[byte](s, len(s.arenaMem)); err != nil {
		t.Fatal(err)
	}
	const n = pieceBytes
	var ids []uint32
	for tag := range len(s.slab.chunks) + 3 {
		if _, err := Irecv(s.World(), make([]byte, 2*n), 1, tag); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.next(shm.OpRecv).Req)
	}
	for _, id := range ids {
		d := shm.Descriptor{Op: shm.OpMatched, Req: id, Peer: 1}
		d.SetBody(0, n, 0, 0)
		f.tell(d)
		settle(t, s)
	}
	for range ids {
		k := f.next(shm.OpStage)
		f.returnBlock(&k, n, 0)
		f.done(k.Req, shm.StatusOK, n)
		settle(t, s)
	}
	f.quiet()
}

// TestMessagesInOneChunk: a message of up to one piece is in one chunk, and is not staged:
// neither its send nor its receive waits for a request. Waiting receives hold at most a part
// of the memory, and return it when they end.
func TestMessagesInOneChunk(t *testing.T) {
	s, f := attachTo(t, shape{arena: 8 << 20})
	msg := []byte(strings.Repeat("whole", 3000))
	sent, err := Isend(s.World(), msg, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpSend)
	if d.Class != shm.ClassSlab || string(f.memory(&d)) != string(msg) {
		t.Fatalf("class %d, and %d bytes", d.Class, d.Len())
	}
	if err := Send(t.Context(), s.World(), msg, 1, 1); err != nil { // its buffer can be reused at once
		t.Fatal(err)
	}
	buffered := f.next(shm.OpSend)
	f.done(d.Req, shm.StatusOK, 0)
	f.done(buffered.Req, shm.StatusOK, 0)
	if _, err := sent.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	const receives = 64
	var posted []shm.Descriptor
	var requests []Request
	bufs := make([][]byte, receives)
	whole := 0
	for i := range bufs {
		bufs[i] = make([]byte, pieceBytes)
		r, err := Irecv(s.World(), bufs[i], 1, i)
		if err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpRecv)
		if requests, posted = append(requests, r), append(posted, d); d.Class != shm.ClassStaged {
			whole++
		}
	}
	if most := s.slab.half - s.slab.half/2 + s.arenaShare()/2/pieceBytes; whole == 0 || whole > most {
		t.Fatalf("%d receives hold a chunk each, want up to %d", whole, most)
	}
	for i, d := range posted {
		if d.Class == shm.ClassStaged {
			f.done(d.Req, shm.StatusOK, 0)
		} else {
			copy(f.memory(&d), msg)
			f.done(d.Req, shm.StatusOK, uint64(len(msg)))
		}
		st, err := requests[i].Wait(t.Context())
		if err != nil || d.Class != shm.ClassStaged && string(bufs[i][:st.Bytes]) != string(msg) {
			t.Fatalf("receive %d of class %d: %v, %+v", i, d.Class, err, st)
		}
	}
	allFree(t, s)
}

func TestSmallestSlabHasChunksForBothWays(t *testing.T) {
	var s slab
	if err := s.init(1<<18, 8<<10); err != nil {
		t.Fatal(err)
	}
	if s.half < 2 || len(s.chunks) < chunksMin || len(s.slots) == 0 {
		t.Fatalf("%d chunks of %d bytes, half of them %d, and %d slots", len(s.chunks), s.chunkBytes, s.half, len(s.slots))
	}
	if err := new(slab).init(100, 64); !errors.Is(err, ErrNoMemory) {
		t.Fatalf("a slab of 100 bytes: %v", err)
	}
}

func TestChunkThatWasNotLent(t *testing.T) {
	s, f := attachTo(t, shape{})
	if _, err := Isend(s.World(), make([]byte, 1<<20), 1, 1); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpSend)
	k := f.next(shm.OpStage)
	k.SetBody(k.Addr()+64, k.Len(), 0, 0)
	f.returnBlock(&k, k.Len(), 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.progress(); !errors.Is(err, ErrSidecarGone) {
		t.Fatalf("got %v", err)
	}
}
