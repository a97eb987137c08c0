package outrigger

// fifo is a queue whose memory is used again.
type fifo[E any] struct {
	list []E
	next int // the first one's place
}

func (q *fifo[E]) len() int { return len(q.list) - q.next }

func (q *fifo[E]) first() (e E, ok bool) {
	if q.len() > 0 {
		return q.list[q.next], true
	}
	return e, false
}

// push moves what is left to the front when half of the memory lies before it,
// so that a queue that is never empty stays small.
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
