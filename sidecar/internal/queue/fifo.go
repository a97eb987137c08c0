// Package queue has the two queues of the sidecar that reuse their memory: FIFO, a
// first-in, first-out queue, and Fair, a round robin over owners. Both are for one
// goroutine, allocate nothing in a steady state, and are bounded by their users: the core
// queues frames and messages in them, and links the remote operations.
package queue

import "slices"

// FIFO is a first-in, first-out queue that reuses its memory. The zero value is empty.
type FIFO[E any] struct {
	list []E
	next int // index of the first element
}

// Len returns the number of elements in q.
func (q *FIFO[E]) Len() int { return len(q.list) - q.next }

// First returns the oldest element. Preconditions: q is not empty.
func (q *FIFO[E]) First() *E { return &q.list[q.next] }

// Push appends e. It moves the elements to the front when half of the memory before them
// is free, so that a queue that is never empty stays small.
func (q *FIFO[E]) Push(e E) {
	if q.next > 0 && q.next >= q.Len() {
		n := copy(q.list, q.list[q.next:])
		clear(q.list[n:])
		q.list, q.next = q.list[:n], 0
	}
	q.list = append(q.list, e)
}

// Unshift inserts e before all others.
func (q *FIFO[E]) Unshift(e E) {
	if q.next == 0 {
		q.list = slices.Insert(q.list, 0, e)
		return
	}
	q.next--
	q.list[q.next] = e
}

// Pop removes and returns the oldest element. Preconditions: q is not empty.
func (q *FIFO[E]) Pop() E { return q.PopAt(0) }

// PopAt removes and returns the element at index i of Rest. It moves the elements before
// i, so it is cheap near the front.
func (q *FIFO[E]) PopAt(i int) E {
	at := q.next + i
	e := q.list[at]
	copy(q.list[q.next+1:at+1], q.list[q.next:at])
	var none E
	q.list[q.next] = none
	q.next++
	return e
}

// Remove deletes the element at index i of Rest. It moves the elements behind i.
func (q *FIFO[E]) Remove(i int) { q.list = slices.Delete(q.list, q.next+i, q.next+i+1) }

// RemoveFunc deletes the elements for which out is true, and calls it in the order of the
// queue.
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

// Rest returns the elements of q, oldest first, in q's own memory.
func (q *FIFO[E]) Rest() []E { return q.list[q.next:] }

// Reset empties q and reports whether its memory is small enough to be reused.
func (q *FIFO[E]) Reset() bool {
	clear(q.list)
	q.list, q.next = q.list[:0], 0
	return cap(q.list) <= fifoKeep
}

// fifoKeep bounds the memory of an empty queue that is reused, in elements, so that one
// burst does not pin memory for ever.
const fifoKeep = 64
