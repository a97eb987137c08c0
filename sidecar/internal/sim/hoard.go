package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// A hoarder opens thousands of requests and leaves in good order. Their ends come
// in steps, so that no turn does much of them and the innocent pair beside it does
// not notice; and what it had sent comes, however much more that was than there is
// credit for.

// hoardRequests is what the hoarder opens: several steps' worth, and more
// messages than there is credit for.
const (
	hoardRequests = 6000
	hoardCredit   = 128 << 10
	hoardTurn     = 5 * 1024 // most states of requests that one turn may end: a collective has several
	hoardBurst    = 16
	// hoardTripRing bounds the pair's round trips where small frames go by remote
	// writes: twice the most of 400 seeds. A full ring is waited for (P§5.7). Other
	// links keep to what fair jobs do.
	hoardTripRing = 15_000_000
	hoardLeaves   = 2 // of the job's progress: by itself (look)
)

// Ranks of a job with a hoarder; the pair's are those of a fair job.
const (
	hoardRank  = busyRank
	keeperRank = partnerRank
)

// hoarding is such a job.
type hoarding struct {
	*world
	open int        // requests after the last step
	gone *operation // ends when the hoarder does
}

// Hoard runs the job with a hoarder of a seed.
func Hoard(seed uint64) error { return hoard(seed, nil) }

func hoard(seed uint64, t *Trace) error {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), victim: -1, doomed: -1, slow: -1}
	w.podOf = []int32{0, 0, 1, 1}
	w.net = newNetwork(w.rng, 2)
	w.net.calm, w.net.deadly, w.net.trace = true, true, t
	h := &hoarding{world: w, gone: &operation{}}
	w.fair, w.desertion, w.credit, w.watch = true, true, hoardCredit, h.look
	err := w.guarded(func() error {
		if err := w.boot(); err != nil {
			return err
		}
		h.plan()
		return w.run()
	})
	if err == nil {
		most := w.fairTrip()
		if w.net.caps.Write {
			most = hoardTripRing
		}
		err = w.checkTrips(most)
	}
	if err = w.end(err); err != nil {
		return fmt.Errorf("hoard seed %d: %w", seed, err)
	}
	return nil
}

// plan gives the pair its messages, and the hoarder one kind of requests.
func (h *hoarding) plan() {
	h.planPair()
	hoarder, keeper := h.apps[hoardRank], h.apps[keeperRank]
	hoarder.burst, keeper.burst, hoarder.deserts = hoardBurst, hoardBurst, hoardLeaves
	kind := hoards[h.rng.IntN(len(hoards))]
	for i := range hoardRequests {
		o := kind(i)
		hoarder.ops = append(hoarder.ops, o)
		if o.send { // received when its sender has long gone
			keeper.ops = append(keeper.ops, &operation{
				peer: hoardRank, tag: o.tag, seq: i, payload: o.payload, room: len(o.payload), class: shm.ClassInline, after: h.gone,
			})
		}
	}
	h.number()
}

// hoards are the kinds of requests: nobody ever matches them, but those that are
// silent.
var hoards = []func(i int) *operation{
	func(int) *operation { return &operation{act: &cancelled{peer: pongRank, n: 8}} },
	func(i int) *operation { // over when it is received: it ends with its rank
		o := hoarded(i)
		o.flags, o.class = shm.FlagSync, shm.ClassArena
		return o
	},
	func(int) *operation { return &operation{act: &waitingProbe{}} },
	func(int) *operation { return &operation{act: &loneBarrier{}} },
	hoarded,
}

// hoarded is a message for the keeper that nobody is told the end of.
func hoarded(i int) *operation {
	return &operation{
		send: true, peer: keeperRank, tag: 9, seq: i, flags: shm.FlagSilent,
		class: shm.ClassInline, payload: content(hoardRank, keeperRank, 9, i, shm.InlineMax),
	}
}

// waitingProbe is for a message that nobody sends.
type waitingProbe struct{ cancelled }

func (*waitingProbe) describe(*app) shm.Descriptor {
	return shm.Descriptor{Op: shm.OpProbe, Peer: pongRank, Tag: tagNobodySends}
}

// loneBarrier is a collective that nobody else comes to.
type loneBarrier struct{ cancelled }

func (*loneBarrier) describe(a *app) shm.Descriptor {
	if a.bulk == 0 {
		a.bulk = a.take(shm.CollBlockBytes)
		b := shm.CollBlock{Kind: shm.CollBarrier}
		b.Encode(a.arena[a.bulk:])
	}
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(a.bulk), shm.CollBlockBytes, 0, 0)
	return d
}

// look lets the hoarder go when it has everything, and sees how much a turn ends.
func (h *hoarding) look() error {
	a := h.apps[hoardRank]
	if a.dead {
		a.linger()
	} else if a.posted == len(a.ops) {
		var err error
		if a.dead, err = a.submit.Push(&shm.Descriptor{Op: shm.OpDetach}); err != nil {
			return err
		}
		h.gone.ended = a.dead
	}
	n := open(h.engines[h.podOf[hoardRank]].Counters())
	if h.open-n > hoardTurn {
		return fmt.Errorf("one turn ended %d requests of rank %d", h.open-n, a.rank)
	}
	h.open = n
	return nil
}
