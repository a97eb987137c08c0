package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// Errors of an attachment that is refused because its rank has attached before.
var (
	errEnding = errors.New("this sidecar ends: no rank may attach any more")
	errGone   = errors.New("the client closed its connection before its rank could attach again")
)

// returning is the attachment of a rank that has left before. It waits until the next
// generation begins (core.Renew). session.Server admits at most one for each rank.
type returning struct {
	session *session.Session
	answer  func(error)
	waited  bool // at least once for the next generation
}

// AttachLater requests the attachment of a rank that may have left before. answer is called
// on the turn goroutine when the session is attached or refused. AttachLater returns an
// error if the engine has stopped.
func (e *Engine) AttachLater(s *session.Session, answer func(error)) error {
	return e.inbox.post(func(e *Engine) {
		e.reattaching = append(e.reattaching, returning{session: s, answer: answer})
		e.readmit()
	})
}

// Withdraw answers an attachment that waits for the next generation with cause
// (session.Host).
func (e *Engine) Withdraw(s *session.Session, cause error) {
	_ = e.inbox.post(func(e *Engine) { // a stopped engine has answered all attachments
		e.reattaching = slices.DeleteFunc(e.reattaching, func(r returning) bool {
			if r.session == s {
				r.answer(cause)
			}
			return r.session == s
		})
	})
}

// readmit attaches the sessions whose ranks have not left this generation, and begins the
// next generation if this one has ended in this pod. It returns the number of attachments
// answered.
func (e *Engine) readmit() (answered int) {
	if len(e.reattaching) == 0 { // the usual case
		return 0
	}
	answered = e.readmitNow()
	if len(e.reattaching) > 0 && e.core.Renew(e.now) {
		answered += e.readmitNow()
	}
	return answered
}

func (e *Engine) readmitNow() (answered int) {
	waiting := e.reattaching[:0]
	for _, r := range e.reattaching {
		switch {
		case e.core.Leaving():
			r.answer(errEnding)
		case e.hasLeft(r.session.Rank):
			r.waited = true
			if e.core.Failed() == nil {
				waiting = append(waiting, r)
				continue
			}
			r.answer(fmt.Errorf("the job has failed: %w", e.core.Failed()))
		case r.waited && r.session.Gone(): // attached now, it would count as a rank that vanished
			r.answer(errGone)
		default:
			r.answer(e.Attach(r.session))
		}
		answered++
	}
	clear(e.reattaching[len(waiting):])
	e.reattaching = waiting
	return answered
}

// hasLeft reports whether a rank has left this generation, or its socket has closed and its
// last descriptors are not yet processed.
func (e *Engine) hasLeft(rank uint32) bool {
	a := e.byRank[rank]
	return e.core.HasLeft(rank) || a != nil && a.ended && !e.isGone(a)
}

// isGone reports whether a session has ended.
func (e *Engine) isGone(a *attached) bool { return e.sessions[a.id] != a || e.core.Left(a.id) }

// refuseAll answers the waiting attachments with cause when the engine stops.
func (e *Engine) refuseAll(cause error) {
	for _, r := range e.reattaching {
		r.answer(cause)
	}
	e.reattaching = nil
}
