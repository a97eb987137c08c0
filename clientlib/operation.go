package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// op is an operation. Its index in the table is the request number of the contract. Session.mu
// guards it.
//
// Its states: begin opens it; submitOp publishes its descriptor; OpDone sets done; finish frees it
// when a call returns the result, or completeOp does if it is detached.
type op struct {
	gen   uint32
	what  string
	comm  *Comm
	peer  int
	tag   int
	bytes int

	open     bool
	done     bool
	detached bool // no call waits for the operation: its completion frees it
	sends    bool // the operation sends a message, and Close waits for it
	buffered bool // the operation is a send whose message was copied, and whose call has returned
	receives bool
	claims   bool   // the operation is a matched probe, which claims its message
	typ      uint8  // type of the elements that a receive expects; 0: any
	sent     uint8  // type of the elements of the message that a receive has got
	awaited  bool   // a goroutine waits, or has waited, for the operation
	locks    lock   // the lock that the operation requests; the zero value: none
	window   uint32 // number of the window of a one-sided operation

	collective bool
	cancelled  bool // Cancel was called

	lent    bool    // the engine reads or writes the caller's memory
	uses    [2]span // ranges of the arena that are read or written until done
	exposed bool    // the memory is exposed: chunks are submitted only if the engine asks for them

	buf     []byte // private memory of a receive or a staged send
	room    int    // length of the caller's buffer, kept after the caller has given up
	slot    uint64 // slab slot in use
	slotted bool
	whole   bool // one chunk, which is the first of spare, carries the message
	loan    loan

	status shm.Status
	source uint32
	rtag   uint64
	length uint64
	aux    uint64
	old    [elementMax]byte // value before a fetch operation

	off       int        // number of bytes of a staged message for which chunks were submitted
	want      int        // total number of bytes for which chunks will be submitted
	chunks    chunkQueue // chunks that the engine has
	spare     chunkQueue // chunks that the engine has returned, for the next parts of the message
	peerWaits bool       // the peer waits for chunks of this staged operation
	queued    bool       // the request is in todo.stage or in one of todo.starved
	reduce    Op         // operation of a reducing collective

	exposure  *Exposed // the exposure that the operation makes or ends
	unexposes bool     // the operation ends the exposure
}

// elementMax is the size of the largest element of a window, a complex128.
const elementMax = 16

// inUse reports whether the operation, if it is not done, reads or writes any of the n bytes from
// off on in the arena.
func (o *op) inUse(off, n int) bool {
	if !o.open || o.done {
		return false
	}
	for _, u := range o.uses {
		if u.off < off+n && off < u.off+u.size {
			return true
		}
	}
	return false
}

// name returns the operation with its peer and tag, for errors.
func (o *op) name() string {
	text := o.what
	if o.peer >= 0 {
		text += fmt.Sprintf(" with rank %d", o.peer)
	}
	if o.tag >= 0 {
		text += fmt.Sprintf(" tag %d", o.tag)
	}
	return text
}

// misused returns the error of a one-sided operation that its target has rejected. Mistakes that
// this rank can detect are returned before the operation starts.
func (o *op) misused() error {
	if o.peer == AnySource {
		return fmt.Errorf("%w: window %d was freed on a rank that this one has accessed, or an epoch of it is open", ErrInvalid, o.window)
	}
	return fmt.Errorf("%w: rank %d has closed its session, or has no window %d any more, or an access to it since the last flush was out of its bounds", ErrInvalid, o.peer, o.window)
}

// leftEarly adds a question to the error of a collective that has not completed because a rank has
// closed its session: the ranks may disagree about whether that rank takes part.
func (o *op) leftEarly(err error) error {
	ask := ""
	switch o.what {
	case "reduce", "gather":
		ask = "do all ranks name the same root?"
	case "gatherv":
		ask = "do all ranks name the same root, and are its counts zero?"
	case "alltoallv", "scatterv":
		ask = "are its counts zero?"
	default:
		return err
	}
	return fmt.Errorf("%w before this %s has ended: %s", err, o.what, ask)
}

// opTable allocates operations and their request numbers.
type opTable struct {
	list    []*op
	free    []uint32
	sending int // number of sends that the engine has not completed
}

func (t *opTable) alloc() (*op, uint32, error) {
	if len(t.free) == 0 {
		n := len(t.list)
		if n >= shm.MaxRequests {
			return nil, 0, ErrTooManyRequests
		}
		grow := max(n, 64)
		block := make([]op, grow)
		for i := range block {
			block[i].gen = 1
			t.list = append(t.list, &block[i])
		}
		for i := n + grow - 1; i >= n; i-- {
			t.free = append(t.free, uint32(i))
		}
	}
	id := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	o := t.list[id]
	o.open = true
	return o, id, nil
}

func (t *opTable) release(id uint32) {
	o := t.list[id]
	// The number may be allocated again while todo still has it. The flag queued is kept, so that
	// no queue has a number twice.
	*o = op{gen: o.gen + 1, queued: o.queued}
	t.free = append(t.free, id)
}

// loan is memory of the arena that an operation uses for operands, results and scratch. It is freed
// when the engine has completed the operation, even if the caller has given up before.
type loan struct {
	off, size int
	out       []byte // private memory that gets the result
	outOff    int    // where the result lies in the arena
}

func (l *loan) copyOut(arena []byte) {
	if l.out != nil {
		copy(l.out, arena[l.outOff:])
	}
}

func (l *loan) returnBlock(a *arena) {
	if l.size > 0 {
		a.returnBlock(l.off, l.size)
		*l = loan{}
	}
}
