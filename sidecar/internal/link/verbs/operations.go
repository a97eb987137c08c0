package verbs

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// operation is a remote read or write in flight.
type operation struct {
	token, notify uint64
	write         bool
	key           link.Key
	local         link.Ref // memory of this side
	addr          uint64   // address of local, for the device
	lkey          uint32
	slot          int32 // slot in the stage, -1: none
	reg           int32 // use of registered memory, -1: none
	length        uint64
	posted        uint64
	regUpTo       uint64 // bytes of local memory that are registered; less than length: it is registered in parts
	parted        bool   // each request keeps a use of its part
	err           error  // the next part could not be registered: the operation ends when its posted requests have
	pending       int    // requests that are posted and not complete
	allPosted     bool   // all requests are posted
	refused       bool
	used          bool
}

// needsPart reports whether all registered memory of op has been posted, and more
// remains.
func (op *operation) needsPart() bool { return op.posted == op.regUpTo && op.posted < op.length }

// Limits of a connection's operations. A small message waits behind the requests that are
// posted, so these are bounded: large operations go in pieces, and take turns.
const (
	pieceMax  = 256 << 10 // bytes of a piece: about 20 us at 100 Gbit/s
	piecesMax = 8         // pieces in flight
)

// operations are the operations of one connection. Each has a number by which the
// completions of its pieces refer to it.
type operations struct {
	table    []operation
	free     []int32
	turns    queue.FIFO[int32] // operations that have something to post
	inFlight int               // requests posted and not complete
}

func (o *operations) add(op operation) {
	op.used = true
	n := int32(len(o.table))
	if k := len(o.free); k > 0 {
		n, o.free = o.free[k-1], o.free[:k-1]
		o.table[n] = op
	} else {
		o.table = append(o.table, op)
	}
	o.turns.Push(n)
}

// turn returns the number of the operation in turn, whose next piece can be posted, or
// -1.
func (o *operations) turn() int32 {
	if o.turns.Len() == 0 || o.inFlight >= piecesMax {
		return -1
	}
	return *o.turns.First()
}

// piece returns the next piece of operation n.
func (o *operations) piece(n int32) (off, length uint64, last bool) {
	op := &o.table[n]
	length = min(op.regUpTo-op.posted, pieceMax)
	return op.posted, length, op.posted+length == op.length
}

// sent counts a piece as posted in requests requests, and advances to the next operation.
func (o *operations) sent(n int32, length uint64, requests int) {
	op := &o.table[n]
	op.posted += length
	op.pending += requests
	o.inFlight += requests
	o.turns.Pop()
	if op.allPosted = op.posted == op.length; !op.allPosted {
		o.turns.Push(n)
	}
}

// stop ends operation n, which is in turn, before all of it is posted, and reports
// whether none of its requests is in flight.
func (o *operations) stop(n int32, err error) bool {
	op := &o.table[n]
	op.err, op.allPosted = err, true
	o.turns.Pop()
	return op.pending == 0
}

// complete counts a request of operation n as complete, and reports whether it was the
// last.
func (o *operations) complete(n int32) bool {
	op := &o.table[n]
	o.inFlight--
	op.pending--
	return op.allPosted && op.pending == 0
}

func (o *operations) remove(n int32) {
	o.table[n] = operation{}
	o.free = append(o.free, n)
}
