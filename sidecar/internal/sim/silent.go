package sim

import (
	"math/rand/v2"
	"time"
)

// A sidecar may be stopped for some seconds and go on, as SIGSTOP, a debugger, a
// frozen cgroup or a paused machine do it. Its ranks run meanwhile; what is sent
// to it waits. Whether its peers give it up or not, it and they must agree.

// silence is one such stop.
type silence struct {
	pod        int // -1: none
	at         float64
	length     int64
	begin, end int64 // when it was; 0: not yet
}

// Lengths of a silence: up to so short that nobody may notice, or up to so long
// that everybody has given it up for a while. Peers wait for 4.5 s, and are told of
// life every 500 ms.
const (
	silenceShort = int64(2 * time.Second)
	silenceLong  = int64(8 * time.Second)
	silenceStep  = int64(time.Millisecond) // of virtual time while nothing else happens
)

// drawSilence decides about a silence, from a source of its own, so that the
// other seeds stay what they were.
func drawSilence(seed uint64, pods int) silence {
	rng := rand.New(rand.NewPCG(seed, 3))
	s := silence{pod: -1, at: rng.Float64(), length: 1 + rng.Int64N(silenceShort)}
	if rng.IntN(2) == 0 {
		s.length = 1 + rng.Int64N(silenceLong)
	}
	if rng.IntN(6) == 0 {
		s.pod = rng.IntN(pods)
	}
	return s
}

// mayKill reports that the peers may give the sidecar up.
func (s *silence) mayKill() bool { return s.pod >= 0 && s.length > silenceShort }

// silent reports whether a pod's sidecar is stopped now.
func (w *world) silent(pod int) bool {
	s := &w.silence
	if w.net.ports[pod].frozen {
		return true
	}
	if pod != s.pod {
		return false
	}
	if s.begin == 0 && w.progress() >= s.at {
		s.begin, s.end = w.net.now, w.net.now+s.length
	}
	return w.net.now < s.end
}

// givenUp reports that somebody holds the job failed because of the silence.
func (w *world) givenUp() bool {
	if !w.silence.mayKill() {
		return false
	}
	for _, e := range w.engines {
		if e.Failure() != nil {
			return true
		}
	}
	return false
}
