// Package epoch counts the messages between ranks about the epochs of a window:
// post-start-complete-wait (MPI 4.1, section 12.5.2), without the requests and frames that
// carry them.
//
//	target: Post ----> origin: Start   (the window may be accessed)
//	                   put, get, ...
//	target: Wait <---- origin: Complete (after all its accesses)
//
// Each side counts the messages that have arrived from each rank and were not waited for.
// Messages are matched by order only: if a rank posts twice, the other one starts twice.
package epoch

import "slices"

// Kind is the kind of a message.
type Kind uint8

// The kinds.
const (
	Post     Kind = iota // the window may be accessed
	Complete             // the accesses are over
)

// Tokens are the messages about one window that have arrived at one rank.
type Tokens struct{ by map[key]*line }

type key struct {
	kind Kind
	from uint32
}

// line has the number of messages from one rank, or the requests that wait for one; never
// both.
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

// tidy removes an empty line.
func (t *Tokens) tidy(kind Kind, from uint32) {
	k := key{kind, from}
	if l := t.by[k]; l != nil && l.come == 0 && len(l.waiting) == 0 {
		delete(t.by, k)
	}
}

// Add counts a message from a rank. It returns the request that has waited for it longest,
// or false if none waits and the message is kept.
func (t *Tokens) Add(kind Kind, from uint32) (request uint64, ok bool) {
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

// Most bounds the requests that wait for one kind of message from one rank: a correct
// program has one.
const Most = 64

// Answer is the result of an Await.
type Answer uint8

// The answers.
const (
	Waits   Answer = iota // no message has arrived
	Taken                 // one had arrived
	Refused               // too many requests wait
)

// Await takes a message that has arrived, or makes the request wait for one.
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

// Cancel ends the wait of a request.
func (t *Tokens) Cancel(kind Kind, from uint32, request uint64) {
	if l := t.by[key{kind, from}]; l != nil {
		if i := slices.Index(l.waiting, request); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
		}
		t.tidy(kind, from)
	}
}

// Waiting reports whether a request waits.
func (t *Tokens) Waiting() bool {
	for _, l := range t.by {
		if len(l.waiting) > 0 {
			return true
		}
	}
	return false
}
