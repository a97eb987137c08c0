package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// A hoarder is a rank that opens thousands of requests and then detaches. The engine ends the
// requests over several turns, so that the round trips of a pair of the same pods stay short.
// The messages that the hoarder had sent are delivered, though they exceed the credit.

const (
	hoardRequests = 6000 // enough for several turns, and for more messages than there is credit
	hoardCredit   = 128 << 10
	hoardTurn     = 5 * 1024 // bound of the request states that one turn may end: a collective has several
	hoardBurst    = 16
	// hoardTripRing bounds the pair's round trips on links that send small frames by remote
	// writes: twice the maximum of 400 seeds. There the sender waits for a full ring (P§5.7).
	// Other links have the bounds of fair jobs.
	hoardTripRing = 15_000_000
	hoardLeaves   = 2 // progress that is never reached: check detaches the hoarder
)

// Ranks of a job with a hoarder. The ranks of the pair are those of a fair job.
const (
	hoardRank    = busyRank
	receiverRank = partnerRank
)

// hoarding is a job with a hoarder.
type hoarding struct {
	*world
	open int        // open requests after the last step
	gone *operation // ends when the hoarder has detached
}

// Hoard runs the job with a hoarder of a seed.
func Hoard(seed uint64) error { return hoard(seed, nil) }

func hoard(seed uint64, t *Trace) error {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), victim: -1, doomed: -1, slow: -1}
	w.podOf = []int32{0, 0, 1, 1}
	w.net = newNetwork(w.rng, 2)
	w.net.faultless, w.net.mayReclaim, w.net.trace = true, true, t
	h := &hoarding{world: w, gone: &operation{}}
	w.fair, w.hasLeavers, w.credit, w.watch = true, true, hoardCredit, h.check
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
	if err = w.finish(err); err != nil {
		return fmt.Errorf("hoard seed %d: %w", seed, err)
	}
	return nil
}

// plan draws the messages of the pair, and one kind of requests for the hoarder.
func (h *hoarding) plan() {
	h.planPair()
	hoarder, receiver := h.apps[hoardRank], h.apps[receiverRank]
	hoarder.burst, receiver.burst, hoarder.leavesAt = hoardBurst, hoardBurst, hoardLeaves
	kind := hoards[h.rng.IntN(len(hoards))]
	for i := range hoardRequests {
		o := kind(i)
		hoarder.ops = append(hoarder.ops, o)
		if o.send { // received after its sender has left
			receiver.ops = append(receiver.ops, &operation{
				peer: hoardRank, tag: o.tag, seq: i, payload: o.payload, room: len(o.payload), class: shm.ClassInline, after: h.gone,
			})
		}
	}
	h.number()
}

// hoards are the kinds of requests. Only the silent sends are ever matched.
var hoards = []func(i int) *operation{
	func(int) *operation { return &operation{act: &cancelled{peer: pongRank, n: 8}} },
	func(i int) *operation { // synchronous: it ends when its rank leaves
		o := hoarded(i)
		o.flags, o.class = shm.FlagSync, shm.ClassArena
		return o
	},
	func(int) *operation { return &operation{act: &waitingProbe{}} },
	func(int) *operation { return &operation{act: &loneBarrier{}} },
	hoarded,
}

// hoarded returns a silent send to the keeper, which has no completion.
func hoarded(i int) *operation {
	return &operation{
		send: true, peer: receiverRank, tag: 9, seq: i, flags: shm.FlagSilent,
		class: shm.ClassInline, payload: content(hoardRank, receiverRank, 9, i, shm.InlineMax),
	}
}

// waitingProbe is a probe for a message that is never sent.
type waitingProbe struct{ cancelled }

func (*waitingProbe) describe(*app) shm.Descriptor {
	return shm.Descriptor{Op: shm.OpProbe, Peer: pongRank, Tag: tagNeverSent}
}

// loneBarrier is a barrier that no other rank calls.
type loneBarrier struct{ cancelled }

func (*loneBarrier) describe(a *app) shm.Descriptor {
	if a.bulk == 0 {
		a.bulk = a.alloc(shm.CollBlockBytes)
		b := shm.CollBlock{Kind: shm.CollBarrier}
		b.Encode(a.arena[a.bulk:])
	}
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(a.bulk), shm.CollBlockBytes, 0, 0)
	return d
}

// check detaches the hoarder when all its requests are posted, and checks how many requests a
// turn has ended.
func (h *hoarding) check() error {
	a := h.apps[hoardRank]
	if a.dead {
		a.drainCompletions()
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
