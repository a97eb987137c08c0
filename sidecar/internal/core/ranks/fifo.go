package ranks

import "slices"

// FIFO is a queue whose memory is used again.
type FIFO[E any] struct {
	list []E
	next int // the first one's place
}

// Len is how many elements are in q.
func (q *FIFO[E]) Len() int { return len(q.list) - q.next }

// First is the oldest. Preconditions: q is not empty.
func (q *FIFO[E]) First() *E { return &q.list[q.next] }

// Push moves what is left to the front when half of the memory lies before it,
// so that a queue that is never empty stays small.
func (q *FIFO[E]) Push(e E) {
	if q.next > 0 && q.next >= q.Len() {
		q.list, q.next = q.list[:copy(q.list, q.list[q.next:])], 0
	}
	q.list = append(q.list, e)
}

// Unshift puts e before all others.
func (q *FIFO[E]) Unshift(e E) {
	if q.next == 0 {
		q.list = slices.Insert(q.list, 0, e)
		return
	}
	q.next--
	q.list[q.next] = e
}

// Pop takes the oldest. Preconditions: q is not empty.
func (q *FIFO[E]) Pop() E {
	e := q.list[q.next]
	q.next++
	return e
}

// Remove takes the element at place i of Rest.
func (q *FIFO[E]) Remove(i int) { q.list = slices.Delete(q.list, q.next+i, q.next+i+1) }

// Rest is what is in q, oldest first; it is q's memory.
func (q *FIFO[E]) Rest() []E { return q.list[q.next:] }

// Reuse empties q and reports whether its memory is worth keeping.
func (q *FIFO[E]) Reuse() bool {
	q.list, q.next = q.list[:0], 0
	return cap(q.list) <= fifoKeep
}

// fifoKeep bounds the memory of an empty queue that is kept, in elements.
const fifoKeep = 64
