package outrigger

// fifo is a queue that reuses its memory.
type fifo[E any] struct {
	list []E
	next int // index of the first element
}

func (q *fifo[E]) len() int { return len(q.list) - q.next }

func (q *fifo[E]) first() (e E, ok bool) {
	if q.len() > 0 {
		return q.list[q.next], true
	}
	return e, false
}

// push appends an element. If half of the memory is before the first element, the elements are moved
// to the front, so that a queue that is never empty stays small.
func (q *fifo[E]) push(e E) {
	if q.next > 0 && q.next >= q.len() {
		q.list, q.next = q.list[:copy(q.list, q.list[q.next:])], 0
	}
	q.list = append(q.list, e)
}

func (q *fifo[E]) pop() (e E, ok bool) {
	if e, ok = q.first(); ok {
		q.next++
	}
	return e, ok
}
