package core

import "slices"

// fifo is a queue whose memory is used again.
type fifo[E any] struct {
	list []E
	next int // the first one's place
}

func (q *fifo[E]) len() int { return len(q.list) - q.next }

// first is the oldest. Preconditions: q is not empty.
func (q *fifo[E]) first() *E { return &q.list[q.next] }

// push moves what is left to the front when half of the memory lies before it,
// so that a queue that is never empty stays small.
func (q *fifo[E]) push(e E) {
	if q.next > 0 && q.next >= q.len() {
		q.list, q.next = q.list[:copy(q.list, q.list[q.next:])], 0
	}
	q.list = append(q.list, e)
}

// unshift puts e before all others.
func (q *fifo[E]) unshift(e E) {
	if q.next == 0 {
		q.list = slices.Insert(q.list, 0, e)
		return
	}
	q.next--
	q.list[q.next] = e
}

// pop takes the oldest. Preconditions: q is not empty.
func (q *fifo[E]) pop() E {
	e := q.list[q.next]
	q.next++
	return e
}

// remove takes the element at place i of rest.
func (q *fifo[E]) remove(i int) { q.list = slices.Delete(q.list, q.next+i, q.next+i+1) }

// rest is what is in q, oldest first; it is q's memory.
func (q *fifo[E]) rest() []E { return q.list[q.next:] }

// reuse empties q and reports whether its memory is worth keeping.
func (q *fifo[E]) reuse() bool {
	q.list, q.next = q.list[:0], 0
	return cap(q.list) <= fifoKeep
}

// fifoKeep bounds the memory of an empty queue that is kept, in elements.
const fifoKeep = 64
