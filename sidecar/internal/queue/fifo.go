// Package queue has the two queues of the sidecar that reuse their memory: FIFO, in which
// what came first goes first, and Fair, in which owners take turns. Both are for one
// goroutine, allocate nothing in a steady state, and are bounded by their users.
package queue

import "slices"

// FIFO is a queue whose memory is used again. The zero value is empty.
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
		n := copy(q.list, q.list[q.next:])
		clear(q.list[n:])
		q.list, q.next = q.list[:n], 0
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
func (q *FIFO[E]) Pop() E { return q.Take(0) }

// Take takes the element at place i of Rest. It moves those before it.
func (q *FIFO[E]) Take(i int) E {
	at := q.next + i
	e := q.list[at]
	copy(q.list[q.next+1:at+1], q.list[q.next:at])
	var none E
	q.list[q.next] = none
	q.next++
	return e
}

// Remove takes out the element at place i of Rest. It moves those behind it.
func (q *FIFO[E]) Remove(i int) { q.list = slices.Delete(q.list, q.next+i, q.next+i+1) }

// RemoveFunc takes out the elements for which out is true, in the order of the queue.
func (q *FIFO[E]) RemoveFunc(out func(*E) bool) {
	kept := q.list[:q.next]
	for i := q.next; i < len(q.list); i++ {
		if !out(&q.list[i]) {
			kept = append(kept, q.list[i])
		}
	}
	clear(q.list[len(kept):])
	q.list = kept
}

// Rest is what is in q, oldest first; it is q's memory.
func (q *FIFO[E]) Rest() []E { return q.list[q.next:] }

// Reuse empties q and reports whether its memory is worth keeping.
func (q *FIFO[E]) Reuse() bool {
	clear(q.list)
	q.list, q.next = q.list[:0], 0
	return cap(q.list) <= fifoKeep
}

// fifoKeep bounds the memory of an empty queue that is kept, in elements.
const fifoKeep = 64
