package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// Errors of ranks that attach again.
var (
	errEnding = errors.New("this sidecar ends: no rank may attach any more")
	errGone   = errors.New("the client has gone before its rank might attach again")
)

// returning is an application whose rank has left before. It waits until the next
// generation begins (core.Renew). There is at most one for each rank: Server sees to that.
type returning struct {
	session *session.Session
	answer  func(error)
	waited  bool
}

// AttachLater asks for the attachment of a rank that may have left before. answer is called on
// the turn goroutine, when the session is known, or refused. An error: the engine has stopped.
func (e *Engine) AttachLater(s *session.Session, answer func(error)) error {
	return e.mail.send(func(e *Engine) {
		e.again = append(e.again, returning{session: s, answer: answer})
		e.readmit()
	})
}

// Withdraw ends the wait of a session that was to be attached later (session.Host).
func (e *Engine) Withdraw(s *session.Session, cause error) {
	_ = e.mail.send(func(e *Engine) { // a stopped engine has answered all
		e.again = slices.DeleteFunc(e.again, func(r returning) bool {
			if r.session == s {
				r.answer(cause)
			}
			return r.session == s
		})
	})
}

// readmit attaches those whose ranks have not left this generation, and begins the next one
// if that has ended here. It returns how many were answered.
func (e *Engine) readmit() (answered int) {
	if len(e.again) == 0 { // almost always
		return 0
	}
	answered = e.readmitNow()
	if len(e.again) > 0 && e.core.Renew(e.now) {
		answered += e.readmitNow()
	}
	return answered
}

func (e *Engine) readmitNow() (answered int) {
	waiting := e.again[:0]
	for _, r := range e.again {
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
		case r.waited && r.session.Gone(): // it would be a rank that has vanished
			r.answer(errGone)
		default:
			r.answer(e.Attach(r.session))
		}
		answered++
	}
	clear(e.again[len(waiting):])
	e.again = waiting
	return answered
}

// hasLeft reports that a rank has left this generation, or that its socket has ended and its
// last words are still to be heard.
func (e *Engine) hasLeft(rank uint32) bool {
	a := e.byRank[rank]
	return e.core.HasLeft(rank) || a != nil && a.ended && !e.isGone(a)
}

// isGone reports that a session has ended.
func (e *Engine) isGone(a *attached) bool { return e.sessions[a.id] != a || e.core.Left(a.id) }

// refuseAll answers those who wait, when the engine stops.
func (e *Engine) refuseAll(cause error) {
	for _, r := range e.again {
		r.answer(cause)
	}
	e.again = nil
}
