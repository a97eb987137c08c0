package reuse

// session is what the table knows of one rank's program, and the rule that stops
// it from growing where nothing is to be gained (000, section 3.4). The paper's
// table stops for good. This one looks again: a program has phases.
type session struct {
	known    uint32 // buffers used in this age
	frequent uint32 // of them registered
	used     uint32 // uses in this window
	unknown  uint32 // of them of unknown buffers
	gathers  uint32 // of them gathered
	pause    uint16 // windows until the table begins again
	waited   uint16 // windows since it stopped
	epoch    uint8  // its age
	stopped  bool   // no buffer is added
	dormant  bool   // and so few are known that no use is looked up

	seen, registered, stops uint64
}

// pauseMax bounds the windows between two attempts to begin again.
const pauseMax = 64

// stop ends the growth of a session's part of the table. What is known goes on
// being used.
func (t *Table) stop(a *session) {
	a.stopped = true
	a.waited = 0
	a.stops++
	t.stats.Stops++
}

// judge looks at a window of a session's uses. A part that has stopped begins a new
// age when its pause is over and the program uses what the table does not know. A
// part that nothing is gathered by is left alone meanwhile.
func (t *Table) judge(a *session) {
	wanting := a.unknown > a.used/8 || a.dormant
	useful := a.gathers > a.used/64
	a.used, a.unknown, a.gathers = 0, 0, 0
	if !a.stopped {
		if a.known > 0 && float64(a.frequent) >= t.cfg.Frequent*float64(a.known) {
			a.pause = 1
		}
		return
	}
	a.dormant = !useful
	a.waited++
	if !wanting || a.waited < a.pause {
		return
	}
	t.stats.Restarts++
	a.stopped, a.dormant, a.known, a.frequent = false, false, 0, 0
	a.pause = min(2*a.pause, pauseMax)
	a.epoch++
}

// revive takes a buffer of an earlier age over into this one. What was rent long
// ago is no sign that it is used often now.
func (t *Table) revive(a *session, e *entry) {
	e.epoch = a.epoch
	a.known++
	if e.state == stateRegistered {
		a.frequent++
		return
	}
	e.rent /= 2
}

// unregister counts one buffer less that is registered. Ages have eight bits: a buffer
// that was last used 256 of them ago is taken for one of this age, and was not counted.
func (a *session) unregister() {
	if a.frequent > 0 {
		a.frequent--
	}
}

// Counts is what is known of one session.
type Counts struct {
	Seen       uint64 // buffers that were made known
	Known      uint32 // of them, used in this age
	Frequent   uint32 // of those, registered
	Registered uint64 // registrations spent
	Stops      uint64
	Stopped    bool
}

// Session returns a session's counters as they stand.
func (t *Table) Session(s Session) Counts {
	a := &t.sessions[s]
	return Counts{a.seen, a.known, a.frequent, a.registered, a.stops, a.stopped}
}

// Forget begins anew for a session whose number is given to another rank.
func (t *Table) Forget(s Session) {
	a := &t.sessions[s]
	*a = session{pause: 1, epoch: a.epoch + 1}
}
