package match

// none is the index that stands for no entry, no bin and no class.
const none = int32(-1)

// list is a doubly linked list, oldest first, whose links are in a chain.
type list struct{ head, tail int32 }

var emptyList = list{none, none}

type link struct{ prev, next int32 }

// chain holds the links of all lists of one kind, indexed by entry. One entry
// is in at most one list of a chain.
type chain []link

// push appends entry i at the young end of l.
func (c chain) push(l *list, i int32) {
	c[i] = link{prev: l.tail, next: none}
	if l.tail == none {
		l.head = i
	} else {
		c[l.tail].next = i
	}
	l.tail = i
}

// cut removes entry i, which must be in l.
func (c chain) cut(l *list, i int32) {
	k := c[i]
	if k.prev == none {
		l.head = k.next
	} else {
		c[k.prev].next = k.next
	}
	if k.next == none {
		l.tail = k.prev
	} else {
		c[k.next].prev = k.prev
	}
}

// grown returns s with length n, its contents kept.
func grown[T any](s []T, n int) []T {
	t := make([]T, n)
	copy(t, s)
	return t
}
