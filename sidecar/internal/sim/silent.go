package sim

import (
	"math/rand/v2"
	"time"
)

// A sidecar may be stopped for some seconds and continue, because of SIGSTOP, a debugger, a
// frozen control group or a paused machine. Its ranks run in the meantime, and frames to it
// wait. Its peers may give it up or not, but it and they must agree on that.

// silence is a stop of a sidecar.
type silence struct {
	pod        int     // -1: none
	at         float64 // progress of the job at which it begins
	length     int64
	begin, end int64 // 0: it has not begun
}

// Bounds of the length of a silence. Peers give a sidecar up after 4.5 s, and heartbeats are
// 500 ms apart: a short silence must not be noticed, and a long one may be.
const (
	silenceShort = int64(2 * time.Second)
	silenceLong  = int64(8 * time.Second)
	silenceStep  = int64(time.Millisecond) // step of the virtual time while nothing else happens
)

// drawSilence draws a silence, from a source of its own, so that the jobs of other seeds do
// not change.
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

// mayKill reports whether the peers may give the sidecar up.
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

// givenUp reports whether a sidecar has failed the job because of the silence.
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
