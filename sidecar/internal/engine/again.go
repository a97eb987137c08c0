package engine

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// Errors of ranks that attach again.
var errEnding = errors.New("this sidecar ends: no rank may attach any more")

// returning is an application whose rank has left before. It waits until the next
// generation begins (core.Renew). There is at most one for each rank: Server sees to that.
type returning struct {
	session *session.Session
	answer  func(error)
}

// AttachLater asks for the attachment of a rank that may have left before. answer is called on
// the turn goroutine, when the session is known, or refused. An error: the engine has stopped.
func (e *Engine) AttachLater(s *session.Session, answer func(error)) error {
	return e.mail.send(func(e *Engine) {
		e.again = append(e.again, returning{s, answer})
		e.readmit()
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
		case !e.hasLeft(r.session.Rank):
			r.answer(e.Attach(r.session))
		case e.core.Failed() != nil:
			r.answer(fmt.Errorf("the job has failed: %w", e.core.Failed()))
		default:
			waiting = append(waiting, r)
			continue
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
