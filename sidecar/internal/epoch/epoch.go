// Package epoch counts what ranks tell each other about the epochs of a window:
// post-start-complete-wait (MPI 4.1, section 12.5.2), without the requests and frames
// around it.
//
//	target: Post ----> origin: Start   (the window may be accessed)
//	                   put, get, ...
//	target: Wait <---- origin: Complete (behind all that it did)
//
// Each side counts what has come of each rank and was not waited for. Nothing is
// matched but by order: a rank that posts twice is started twice.
package epoch

import "slices"

// Kind is what one rank tells another.
type Kind uint8

// Kinds.
const (
	Post     Kind = iota // the window may be accessed
	Complete             // the accesses are over
)

// Tokens are what has come to one rank about one window.
type Tokens struct{ by map[key]*line }

type key struct {
	kind Kind
	from uint32
}

// line is what has come of one rank, or who waits for it; never both.
type line struct {
	come    uint64
	waiting []uint64
}

func (t *Tokens) line(kind Kind, from uint32) *line {
	if t.by == nil {
		t.by = map[key]*line{}
	}
	k := key{kind, from}
	if t.by[k] == nil {
		t.by[k] = new(line)
	}
	return t.by[k]
}

// tidy forgets a line that says nothing.
func (t *Tokens) tidy(kind Kind, from uint32) {
	k := key{kind, from}
	if l := t.by[k]; l != nil && l.come == 0 && len(l.waiting) == 0 {
		delete(t.by, k)
	}
}

// Come notes that a rank has told kind. It returns the request that has waited for it
// longest; false: nobody waits, and it is kept.
func (t *Tokens) Come(kind Kind, from uint32) (request uint64, ok bool) {
	l := t.line(kind, from)
	if len(l.waiting) == 0 {
		l.come++
		return 0, false
	}
	request = l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	t.tidy(kind, from)
	return request, true
}

// Most is how many requests may wait for one rank to tell one kind: a correct program
// has one.
const Most = 64

// Answer is what has come of an Await.
type Answer uint8

// Answers.
const (
	Waits   Answer = iota // nothing has come
	Taken                 // it had
	Refused               // too many wait
)

// Await takes what has come, or waits for it.
func (t *Tokens) Await(kind Kind, from uint32, request uint64) Answer {
	l := t.line(kind, from)
	switch {
	case l.come > 0:
		l.come--
		t.tidy(kind, from)
		return Taken
	case len(l.waiting) >= Most:
		return Refused
	}
	l.waiting = append(l.waiting, request)
	return Waits
}

// Cancel ends the waiting of a request that nobody wants any more.
func (t *Tokens) Cancel(kind Kind, from uint32, request uint64) {
	if l := t.by[key{kind, from}]; l != nil {
		if i := slices.Index(l.waiting, request); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
		}
		t.tidy(kind, from)
	}
}

// Waiting reports that somebody waits.
func (t *Tokens) Waiting() bool {
	for _, l := range t.by {
		if len(l.waiting) > 0 {
			return true
		}
	}
	return false
}
