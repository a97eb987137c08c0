package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// A fair job has a busy rank that moves much data, and a pair of ranks, served by the same
// sidecars, that exchanges small messages. Nothing fails. The pair's round trips must take
// about as long as without the busy rank, and no turn may do much of the busy rank's work.

// Ranks of a fair job. The busy rank and one of the pair are in pod 0, and the others in pod 0
// or pod 1.
const (
	busyRank = iota
	pingRank
	partnerRank
	pongRank
	fairRanks
)

const (
	bulkBytes    = 1 << 20
	bulkBlock    = 4 << 10
	fairTrips    = 20
	fairFragment = 2 << 10
	fairAhead    = 8 << 10 // bytes ahead of a link
	fairFrames   = 16      // messages of a rank ahead of a link
	fairPerPoll  = 4 << 10 // of the link within a sidecar
	// Bounds of a round trip, in nanoseconds, by the size of the pair's messages: twice the
	// maximum of 20,000 seeds.
	fairTripSmall = 600_000
	fairTripLarge = 1_500_000
	// bulkTurn bounds the bytes of a collective that one turn combines or copies.
	bulkTurn = 200 << 10
)

// Fair runs the fair job of a seed.
func Fair(seed uint64) error { return fair(seed, nil) }

func fair(seed uint64, t *Trace) error {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), victim: -1, doomed: -1, slow: -1}
	w.podOf = []int32{0, 0, 1, 1}
	if w.rng.IntN(2) == 0 {
		w.podOf = []int32{0, 0, 0, 0, 1} // the other pod is not used
	}
	w.net = newNetwork(w.rng, 2)
	w.net.faultless, w.net.trace = true, t
	w.fair, w.watch = true, w.watchTurn
	err := w.guarded(func() error {
		if err := w.boot(); err != nil {
			return err
		}
		w.planFair()
		return w.run()
	})
	if err == nil {
		err = w.checkTrips(w.fairTrip())
	}
	if err = w.finish(err); err != nil {
		return fmt.Errorf("fair seed %d: %w", seed, err)
	}
	return nil
}

// planFair draws one kind of work for the busy rank, and the messages of the pair.
func (w *world) planFair() {
	w.planPair()
	w.planBulk()
	w.number()
}

// planPair draws the messages of the pair.
func (w *world) planPair() {
	size := []int{8, 8, 20_000}[w.rng.IntN(3)]
	ping, pong := w.apps[pingRank], w.apps[pongRank]
	var last *operation
	for i := range fairTrips {
		there := w.fairMessage(pingRank, pongRank, i, size)
		back := w.fairMessage(pongRank, pingRank, i, size)
		there[0].after, back[0].after = last, there[1]
		ping.ops = append(ping.ops, there[0], back[1])
		pong.ops = append(pong.ops, there[1], back[0])
		last = back[1]
	}
}

// number sets the request numbers of operations.
func (w *world) number() {
	for _, a := range w.apps {
		for i, o := range a.ops {
			o.req = uint32(i)
		}
	}
}

// fairMessage returns a send and its receive.
func (w *world) fairMessage(src, dst uint32, i, n int) [2]*operation {
	p := content(src, dst, uint64(i), i, n)
	class := shm.ClassArena
	if n <= shm.InlineMax {
		class = shm.ClassInline
	}
	return [2]*operation{
		{send: true, peer: dst, tag: uint64(i), payload: p, class: class},
		{peer: src, tag: uint64(i), payload: p, room: n, class: class},
	}
}

// planBulk draws the busy rank's work.
func (w *world) planBulk() {
	busy, partner := w.apps[busyRank], w.apps[partnerRank]
	target := uint32(partnerRank)
	if w.rng.IntN(4) == 0 {
		target = busyRank // to itself
	}
	exposer := w.apps[target]
	expose := &operation{act: &bulk{op: shm.OpWin}}
	add := func(op shm.Op, n int) {
		for range n {
			busy.ops = append(busy.ops, &operation{act: &bulk{op: op, target: target}, after: expose})
		}
	}
	switch w.rng.IntN(5) {
	case 0:
		for i := range 4 {
			m := w.fairMessage(busyRank, partnerRank, 100+i, bulkBytes)
			busy.ops, partner.ops = append(busy.ops, m[0]), append(partner.ops, m[1])
		}
	case 1:
		exposer.ops = append(exposer.ops, expose)
		add(shm.OpPut, 3)
	case 2:
		exposer.ops = append(exposer.ops, expose)
		add(shm.OpGet, 3)
	case 3:
		exposer.ops = append(exposer.ops, expose)
		add(shm.OpAcc, 2)
	case 4:
		w.planReduction()
	}
}

// planReduction makes the busy rank reduce alone, so that its own sidecar does all the work
// and the progress is visible in the result.
func (w *world) planReduction() {
	a := w.apps[busyRank]
	known := &operation{act: &bulk{op: shm.OpComm}}
	a.ops = append(a.ops, known, &operation{act: &reduction{}, after: known})
}

// bulk is a one-sided operation on the whole window of the target, or the creation of that
// window or of a communicator.
type bulk struct {
	op     shm.Op
	target uint32
}

func (x *bulk) describe(a *app) shm.Descriptor {
	d := shm.Descriptor{Op: x.op, Context: windowNumber, Peer: x.target, Class: shm.ClassArena}
	if x.op == shm.OpComm {
		at := a.alloc(4)
		binary.LittleEndian.PutUint32(a.arena[at:], busyRank)
		d.SetBody(uint64(at), 4, 0, 0)
		return d
	}
	if a.bulk == 0 {
		a.bulk = a.alloc(bulkBytes)
	}
	if x.op == shm.OpAcc {
		d.Tag = uint64(shm.TypeUint8)<<8 | uint64(shm.ReduceMax)
	}
	d.SetBody(uint64(a.bulk), bulkBytes, 0, 0)
	return d
}

func (x *bulk) ended(_ *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK {
		return fmt.Errorf("bulk operation %d ended with status %d", x.op, d.Status)
	}
	return nil
}

// reduction is an allreduce of the busy rank alone.
type reduction struct{}

// untouched is the byte of the result's memory before the result.
const untouched = 0x77

func (reduction) describe(a *app) shm.Descriptor {
	b := shm.CollBlock{
		Kind: shm.CollAllreduce, Type: shm.TypeUint8, Op: shm.ReduceMax, Flags: shm.CollCommutative, Context: windowNumber,
		Count: bulkBytes, Elem: 1, InBytes: bulkBytes, OutBytes: bulkBytes,
	}
	block := a.alloc(shm.CollBlockBytes)
	from := a.alloc(bulkBytes)
	a.bulk = a.alloc(bulkBytes)
	fillByte(a.arena[from:from+bulkBytes], 0xcc)
	fillByte(a.arena[a.bulk:a.bulk+bulkBytes], untouched)
	b.In, b.Out = uint64(from), uint64(a.bulk)
	b.Encode(a.arena[block:])
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(block), shm.CollBlockBytes, 0, 0)
	return d
}

func (reduction) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK {
		return fmt.Errorf("reduction ended with status %d, length %d", d.Status, d.Len())
	}
	for i, v := range a.arena[a.bulk : a.bulk+bulkBytes] {
		if v != 0xcc {
			return fmt.Errorf("byte %d of a reduction is %#x", i, v)
		}
	}
	return nil
}

// changed returns the bytes of the result of a's reduction that are written, in whole blocks.
func (a *app) changed() int {
	n := 0
	for i := a.bulk; i < a.bulk+bulkBytes; i += bulkBlock {
		if a.arena[i] != untouched {
			n += bulkBlock
		}
	}
	return n
}

// watchTurn checks how much of the busy rank's reduction a turn has done.
func (w *world) watchTurn() error {
	a := w.apps[busyRank]
	if a.bulk == 0 {
		return nil
	}
	if _, is := a.ops[len(a.ops)-1].act.(*reduction); !is {
		return nil
	}
	n := a.changed()
	if n-a.seen > bulkTurn {
		return fmt.Errorf("one turn combined or copied %d bytes of rank %d", n-a.seen, a.rank)
	}
	a.seen = n
	return nil
}

// fairTrip returns the bound of a round trip of the pair.
func (w *world) fairTrip() int64 {
	if len(w.apps[pingRank].ops[0].payload) > shm.InlineMax {
		return fairTripLarge
	}
	return fairTripSmall
}

// checkTrips checks that each round trip of the pair takes at most most nanoseconds.
func (w *world) checkTrips(most int64) error {
	ops := w.apps[pingRank].ops
	for i := 2; i+1 < len(ops); i += 2 { // the first one makes the connection
		if d := ops[i+1].overAt - ops[i].postedAt; d > most {
			return fmt.Errorf("round trip %d of the pair took %d us", i/2, d/1000)
		}
	}
	return nil
}
