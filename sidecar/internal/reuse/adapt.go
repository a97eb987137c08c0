package reuse

// session is the table's state of one rank's program, with the rule that stops the table
// from growing when it gains nothing (000, section 3.4). The paper's table stops for good.
// This one tries again, because a program has phases.
type session struct {
	known    uint32 // buffers used in this age
	frequent uint32 // known buffers that are registered
	used     uint32 // uses in this window
	unknown  uint32 // uses of unknown buffers in this window
	gathers  uint32 // gathered uses in this window
	pause    uint16 // windows until the table grows again
	waited   uint16 // windows since it stopped growing
	epoch    uint8  // number of its age
	stopped  bool   // no buffer is added
	dormant  bool   // stopped, and so few buffers are useful that uses are not looked up

	seen, registered, stops uint64
}

// pauseMax bounds the windows between two attempts to grow again, so that a new phase of a
// program is noticed.
const pauseMax = 64

// stop ends the growth of a session's part of the table. The known buffers stay in use.
func (t *Table) stop(a *session) {
	a.stopped = true
	a.waited = 0
	a.stops++
	t.stats.Stops++
}

// judge evaluates a window of a session's uses. A part that has stopped begins a new age
// when its pause is over and the program uses buffers that the table does not know. A part
// that causes no gathers is dormant meanwhile.
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

// revive takes a buffer of an earlier age over into this one. Its rent is halved, because
// old uses do not show that it is used often now.
func (t *Table) revive(a *session, e *entry) {
	e.epoch = a.epoch
	a.known++
	if e.state == stateRegistered {
		a.frequent++
		return
	}
	e.rent /= 2
}

// unregister counts one registered buffer less. Ages have eight bits: a buffer that was
// last used 256 ages ago is taken for one of this age, and was not counted.
func (a *session) unregister() {
	if a.frequent > 0 {
		a.frequent--
	}
}

// Counts are the counters of one session.
type Counts struct {
	Seen       uint64 // buffers that were added to the table
	Known      uint32 // buffers used in this age
	Frequent   uint32 // known buffers that are registered
	Registered uint64 // registrations made
	Stops      uint64
	Stopped    bool
}

// Session returns the present counters of a session.
func (t *Table) Session(s Session) Counts {
	a := &t.sessions[s]
	return Counts{a.seen, a.known, a.frequent, a.registered, a.stops, a.stopped}
}

// Forget resets a session whose number is given to another rank.
func (t *Table) Forget(s Session) {
	a := &t.sessions[s]
	*a = session{pause: 1, epoch: a.epoch + 1}
}
