package outrigger

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// op is the state behind a request; its index is the request number of the
// shared-memory contract. Guarded by Session.mu.
type op struct {
	gen   uint32
	what  string
	comm  *Comm
	peer  int
	tag   int
	bytes int

	open     bool
	done     bool
	detached bool // nobody waits: freed by its completion
	sends    bool // a message, which Close waits for
	buffered bool // a send whose caller has its buffer back
	receives bool
	takes    bool   // a matched probe
	typ      uint8  // of a receive: the type of its elements, 0: any
	sent     uint8  // and of the message's
	awaited  bool   // somebody is, or was, in a Wait for it
	locks    lock   // what it locks, if it does
	window   uint32 // of a one-sided operation

	collective bool
	cancelled  bool // it was asked to end

	lent    bool    // the caller's own memory is with the engine
	uses    [2]span // of the arena, memory of the caller's that is read or written until done
	exposed bool    // it is exposed: chunks are supplied only when they are asked for

	buf     []byte // private memory of a receive or a staged send
	room    int    // its length, also when the caller has taken it back
	slot    uint64 // slab slot in use
	slotted bool
	whole   bool // one chunk, which is the first of spare, carries the message
	loan    loan

	status shm.Status
	source uint32
	rtag   uint64
	length uint64
	aux    uint64
	old    [elementMax]byte // of a fetch, the value before it

	off    int        // bytes of a staged message that chunks were supplied for
	want   int        // bytes that they are to be supplied for in all
	chunks chunkQueue // with the engine
	spare  chunkQueue // back from it, to be used again
	asked  bool       // the receiver of a staged send has asked for it
	queued bool       // in todo.stage or one of todo.starved
	reduce Op         // of a collective

	exposure  *Exposed // that the sidecar is told of,
	unexposes bool     // or told to forget
}

// elementMax is the size of the largest element of a window.
const elementMax = 16

// inUse reports that the operation reads or writes a byte of the n from off on in the
// arena, as long as it is not done.
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

// name is the operation for a person.
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

// misused is what was wrong with a one-sided operation that its target refused. What
// this rank could know was told before.
func (o *op) misused() error {
	if o.peer == AnySource {
		return fmt.Errorf("%w: window %d was freed on a rank that this one has accessed, or an epoch of it is open", ErrInvalid, o.window)
	}
	return fmt.Errorf("%w: rank %d has closed its session, or has no window %d any more, or an access to it since the last flush was out of its bounds", ErrInvalid, o.peer, o.window)
}

// deserted asks about a collective that a rank has left in good order before it ended
// here: each side may have believed that nothing was to come of it.
func (o *op) deserted(err error) error {
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

// opTable gives out request numbers.
type opTable struct {
	list    []*op
	free    []uint32
	sending int // sends that the engine has and has not ended
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
	// A number may be given out again while todo still names it: it stays
	// marked, so that it is named once.
	*o = op{gen: o.gen + 1, queued: o.queued}
	t.free = append(t.free, id)
}

// loan is memory of the arena that the library lends an operation: operands,
// results and scratch. It comes back when the engine is done with it, whoever
// still waits.
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

func (l *loan) giveBack(a *arena) {
	if l.size > 0 {
		a.giveBack(l.off, l.size)
		*l = loan{}
	}
}
