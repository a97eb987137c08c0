package tcp

import "time"

// silence tells when a Poll looks at silent connections, and when connections become silent.
type silence struct {
	polls  int       // since begun
	begun  time.Time // of the time in which a connection has to carry something
	look   int       // polls after which mayLook reads the clock again
	looked time.Time // when Poll last looked at silent connections
}

// isOver reports whether connections that carried nothing since it was last true are silent.
func (s *silence) isOver() bool {
	s.look--
	if s.polls++; s.polls%silentPolls != 0 {
		return false
	}
	now := time.Now()
	if now.Sub(s.begun) < silentTime {
		return false
	}
	s.begun = now
	return true
}

// mayLook reports whether it is time to look at the silent connections.
func (s *silence) mayLook() bool {
	if s.look > 0 {
		return false
	}
	s.look = lookPolls
	now := time.Now()
	if now.Sub(s.looked) < lookInterval {
		return false
	}
	s.looked = now
	return true
}
