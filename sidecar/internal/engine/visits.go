package engine

import "github.com/outrigger-hpc/outrigger/sidecar/internal/silence"

// visits are the sessions that a turn visits: those that submitted something lately, or got a
// completion. The others find the word by which the engine asks for the doorbell set (LAYOUT
// §8), as before a sleep, so that they cost a turn nothing.
type visits struct {
	list  []*attached
	clock silence.Clock // when a turn looks for rings of doorbells, and when ranks become silent
}

// visit makes turns visit a session until it is silent.
func (e *Engine) visit(a *attached) {
	a.heard = true
	if !a.visited && !a.closing {
		a.visited = true
		a.SetSleeping(false)
		e.visits.list = append(e.visits.list, a)
	}
}

// visitSilent looks for rings of silent ranks, if it is time, and ends the visits of the ranks
// that have become silent.
func (e *Engine) visitSilent() {
	v := &e.visits
	if len(v.list) < len(e.active) && v.clock.MayLook(e.now) {
		e.hear(e.sleeper.poll())
	}
	if v.clock.IsOver(1, e.now) {
		e.endVisits()
	}
}

// hear visits the sessions whose doorbells have rung, by the events of the sleeper.
func (e *Engine) hear(n int) {
	events := e.sleeper.events[:n]
	for _, ev := range events {
		if id := ev.Pad - 1; id >= 0 && int(id) < len(e.sessions) && e.sessions[id] != nil {
			e.visit(e.sessions[id])
		}
	}
	if n == len(e.sleeper.events) {
		e.visits.clock.LookNow() // there may be more
	}
}

// endVisits ends the visits of the sessions that were silent since its last call.
func (e *Engine) endVisits() {
	list := e.visits.list[:0]
	for _, a := range e.visits.list {
		if a.visited = !a.becomesSilent(); a.visited {
			list = append(list, a)
		}
	}
	clear(e.visits.list[len(list):])
	e.visits.list = list
}

// becomesSilent reports whether the application will ring its doorbell before the engine has to
// visit its session again. Like the engine before a sleep, it looks at the ring once more after
// it has asked for the doorbell.
func (a *attached) becomesSilent() bool {
	if a.heard || a.ended || a.Doorbell() < 0 || a.Kept() || a.Unpublished() {
		a.heard = false
		return false
	}
	a.Idle()
	a.SetSleeping(true)
	if a.Ready() {
		a.SetSleeping(false)
		return false
	}
	return true
}
