package sim

import (
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
)

// seats are where engines and computing ranks are, as their sidecars tell each other
// (P§5.8): on one to three machines, and somewhere else at every look. It has a source
// of its own, so that it changes nothing that seeds draw otherwise.
type seats struct {
	rng      *rand.Rand
	machines uint64 // 0: sidecars do not know theirs
}

func drawSeats(seed uint64) seats {
	rng := rand.New(rand.NewPCG(seed, 38))
	return seats{rng, rng.Uint64N(4)}
}

// machine is that of a pod.
func (s *seats) machine(pod linkPeer) uint64 {
	if s.machines == 0 {
		return 0
	}
	return 1 + uint64(pod)%s.machines
}

// sit has an engine look at its place now and then.
func (s *seats) sit(e *engine.Engine) {
	if s.machines == 0 || s.rng.IntN(16) > 0 {
		return
	}
	seat := core.Seat{CPU: s.rng.IntN(5) - 1}
	for range s.rng.IntN(3) {
		seat.Computes.Add(s.rng.IntN(512))
	}
	e.Sit(&seat)
}
