package verbs

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// operation is a remote read or write under way.
type operation struct {
	token, notify uint64
	write         bool
	key           link.Key
	local         link.Ref // of this side's memory
	addr          uint64   // of it, for the device
	lkey          uint32
	slot          int32 // of staged memory, -1: none
	known         int32 // entry of the known memory, -1: none
	length        uint64
	posted        uint64
	upto          uint64 // of its local memory, what known has; less than length: it is registered part by part
	parted        bool   // so that each request keeps the part that it is of
	err           error  // the next part could not be registered: it ends when what is posted has
	left          int    // requests that are posted and not done
	over          bool   // all are posted
	refused       bool
	used          bool
}

// reached reports that all of op that its side's memory is known of has been posted, and
// that there is more.
func (op *operation) reached() bool { return op.posted == op.upto && op.posted < op.length }

// Limits of a connection's operations. A small message waits behind what is
// posted, so that it is not much: large ones go in pieces, and take turns.
const (
	pieceMax  = 256 << 10
	piecesMax = 8
)

// operations are those of one connection. Each has a number that the completions
// of its pieces are found by.
type operations struct {
	table []operation
	free  []int32
	turns queue.FIFO[int32] // with something to post
	under int               // requests posted and not done
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

// turn is the number of the operation whose next piece is to be posted, or -1.
func (o *operations) turn() int32 {
	if o.turns.Len() == 0 || o.under >= piecesMax {
		return -1
	}
	return *o.turns.First()
}

// piece is the next part of operation n.
func (o *operations) piece(n int32) (off, length uint64, last bool) {
	op := &o.table[n]
	length = min(op.upto-op.posted, pieceMax)
	return op.posted, length, op.posted+length == op.length
}

// sent counts a piece as posted, in so many requests, and lets the next operation
// have its turn.
func (o *operations) sent(n int32, length uint64, requests int) {
	op := &o.table[n]
	op.posted += length
	op.left += requests
	o.under += requests
	o.turns.Pop()
	if op.over = op.posted == op.length; !op.over {
		o.turns.Push(n)
	}
}

// giveUp ends operation n, whose turn it is, before all of it is posted, and reports
// whether nothing of it is.
func (o *operations) giveUp(n int32, err error) bool {
	op := &o.table[n]
	op.err, op.over = err, true
	o.turns.Pop()
	return op.left == 0
}

// complete counts a request of operation n as done, and reports whether it was the
// last.
func (o *operations) complete(n int32) bool {
	op := &o.table[n]
	o.under--
	op.left--
	return op.over && op.left == 0
}

func (o *operations) end(n int32) {
	o.table[n] = operation{}
	o.free = append(o.free, n)
}
