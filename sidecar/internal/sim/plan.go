package sim

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// sizes are message lengths at the limits between protocols, and next to them.
var sizes = []int{0, 1, 8, 31, 32, 33, 64, 65, 1000, 2048, 4096, 8192, 8193, 20_000, 65_535, 65_536, 65_537, 150_000}

// plan draws the operations of every application. Every message has a receive. A rank
// receives either all its messages by source and tag, in a random order, or all of them by
// wildcard.
func (w *world) plan() {
	ranks := len(w.apps)
	byRank := make([]*app, ranks)
	for _, a := range w.apps {
		byRank[a.rank] = a
	}
	w.apps = byRank
	w.planLeavers()
	if !w.hasLeavers { // collectives and windows need all their ranks
		if w.rng.IntN(2) == 0 && !w.exposing {
			w.planWindow()
			w.leaving = nil // a window is accessed while its rank does nothing
			if w.rng.IntN(3) == 0 {
				w.planMisuse()
			}
		}
		w.planCollectives()
	}
	wild := make([]map[[2]uint64][]byte, ranks)
	claims := make([]bool, ranks)
	for r := range wild {
		claims[r] = w.rng.IntN(3) == 0
		// A wildcard receive does not notice the end of a sidecar without connections.
		if w.rng.IntN(2) == 0 && !w.mayFail() && !w.hasLeavers && !w.early && w.sleep.rng == nil {
			wild[r] = map[[2]uint64][]byte{}
		}
	}
	messages := 4 + w.rng.IntN(40)
	if w.sleep.rng != nil {
		messages += smallMessages
	}
	for range messages {
		src, dst := uint32(w.rng.IntN(ranks)), uint32(w.rng.IntN(ranks))
		if w.early { // many messages with few envelopes, which could match the wrong receives
			src, dst = uint32(ranks-1-w.rng.IntN(2)), uint32(w.rng.IntN(2))
		}
		small := w.sleep.rng != nil && w.rng.IntN(smallMessages) > 40
		if small { // one way: an answer would wake an engine that sleeps
			src, dst = max(src, dst), min(src, dst)
		}
		a, b := w.apps[src], w.apps[dst]
		n := sizes[w.rng.IntN(len(sizes))]
		if (w.early || w.exposing) && w.rng.IntN(2) == 0 {
			n = sizes[len(sizes)-1-w.rng.IntN(4)]
		}
		if small {
			n = sizes[w.rng.IntN(9)]
		}
		seq := a.sentTo(dst)
		tag := uint64(w.rng.IntN(3))
		if w.early {
			tag /= 2
		}
		if wild[dst] != nil {
			tag = uint64(seq)
		}
		claim := w.hasLeavers && w.rng.IntN(4) == 0
		if claim = claim && w.sleep.rng == nil; claim { // with a tag of its own: a probe and a receive of one tag race
			tag = uint64(1000 + seq)
		}
		p := content(src, dst, tag|uint64(w.salt)<<12, seq, n)
		a.ops = append(a.ops, w.sending(dst, tag, seq, p))
		r := w.receiving(src, tag, seq, p)
		if wild[dst] != nil {
			wild[dst][[2]uint64{uint64(src), tag}] = p
			r.peer, r.tag, r.ignore, r.want = shm.AnySource, 0, ^uint64(0), wild[dst]
			r.class, r.room, r.claim = w.wildClass(), sizes[len(sizes)-1], claims[dst]
		} else {
			if claim {
				r.class, r.room, r.claim = w.wildClass(), len(p), true
			}
			w.planAside(b, src, tag, wild[src] != nil)
		}
		b.ops = append(b.ops, r)
	}
	for _, a := range w.apps {
		a.planExposed()
		w.mix(a)
		if w.parts != nil {
			w.wrapWindow(a)
		}
		for i, o := range a.ops {
			o.req = uint32(i)
		}
	}
}

// planCollectives gives all ranks the same collectives in the same order.
func (w *world) planCollectives() {
	for salt := range w.rng.IntN(5) {
		k := collectives[w.rng.IntN(len(collectives))]
		c := collective{kind: k.kind, count: 1 << w.rng.IntN(9), salt: uint64(salt + 10 + 100*w.salt)}
		if k.kind == shm.CollBarrier {
			c.count = 0
		}
		if k.kind == shm.CollBcast {
			c.root = uint32(w.rng.IntN(len(w.apps)))
		}
		for _, a := range w.apps {
			mine := c
			at := len(a.extras)
			if w.parts == nil { // with a window, in the same order on all ranks: its accesses depend on that
				at = w.lastCollective(a) + w.rng.IntN(len(a.extras)-w.lastCollective(a)+1)
			}
			a.extras = slices.Insert(a.extras, at, &operation{act: &mine})
		}
	}
}

// lastCollective returns the index after the last collective among a's extras.
func (w *world) lastCollective(a *app) int {
	for i := len(a.extras) - 1; i >= 0; i-- {
		if _, is := a.extras[i].act.(*collective); is {
			return i + 1
		}
	}
	return 0
}

// planAside adds, for some messages, a probe for it, or a receive or send that is cancelled.
func (w *world) planAside(a *app, src uint32, tag uint64, wild bool) {
	switch w.rng.IntN(6) {
	case 0:
		a.extras = append(a.extras, &operation{act: &immediateProbe{peer: src, tag: tag}})
	case 1:
		a.extras = append(a.extras, &operation{act: &cancelled{peer: src, n: sizes[w.rng.IntN(len(sizes))]}})
	case 2:
		// The send would be received, or its cancellation sent to a rank that has left.
		if wild || w.leaving != nil || w.hasLeavers || w.again != nil {
			return
		}
		a.extras = append(a.extras, &operation{act: &cancelled{send: true, peer: src, n: 1 + sizes[w.rng.IntN(len(sizes))]}})
	}
}

func (a *app) sentTo(dst uint32) int {
	n := 0
	for _, o := range a.ops {
		if o.send && o.peer == dst {
			n++
		}
	}
	return n
}

func (w *world) wildClass() shm.Class {
	return []shm.Class{shm.ClassArena, shm.ClassStaged, shm.ClassSlab}[w.rng.IntN(3)]
}

// slabMost is the size of the largest message in the slab, as in clients.
const slabMost = 64 << 10

func (w *world) sending(dst uint32, tag uint64, seq int, p []byte) *operation {
	o := &operation{send: true, peer: dst, tag: tag, seq: seq, payload: p}
	classes := []shm.Class{shm.ClassArena, shm.ClassStaged}
	if len(p) <= shm.InlineMax {
		classes = append(classes, shm.ClassInline, shm.ClassInline)
	}
	if len(p) <= slabMost {
		classes = append(classes, shm.ClassSlab)
	}
	o.class = classes[w.rng.IntN(len(classes))]
	if w.early && len(p) > 8192 && w.rng.IntN(4) > 0 {
		o.class = shm.ClassArena
	}
	switch {
	case o.class == shm.ClassInline && w.rng.IntN(2) == 0:
		o.flags = shm.FlagSilent
	case w.rng.IntN(4) == 0:
		o.flags = shm.FlagSync
	}
	return o
}

func (w *world) receiving(src uint32, tag uint64, seq int, p []byte) *operation {
	o := &operation{peer: src, tag: tag, seq: seq, payload: p, room: len(p)}
	if len(p) > 0 && w.rng.IntN(10) == 0 {
		o.room = w.rng.IntN(len(p)) // too short: the message is truncated
	}
	classes := []shm.Class{shm.ClassArena, shm.ClassStaged}
	if len(p) <= shm.InlineMax && o.room == len(p) {
		classes = append(classes, shm.ClassInline)
	}
	if len(p) <= slabMost {
		classes = append(classes, shm.ClassSlab)
	}
	o.class = classes[w.rng.IntN(len(classes))]
	if w.early && w.rng.IntN(4) > 0 {
		o.class = shm.ClassArena
	}
	// Bits that no tag has, so that there are more masks than matching hashes by. Not in a
	// job with hundreds of small messages, which could exceed the bound on such receives.
	if w.seed%5 == 0 && !w.early && w.sleep.rng == nil {
		o.ignore = 1 << (20 + seq%12)
	}
	return o
}

// mix interleaves an application's sends, receives and extras at random. Sends keep their
// order, as do receives and collectives, so that messages that overtake are found.
func (w *world) mix(a *app) {
	var sends, receives []*operation
	for _, o := range a.ops {
		if o.send {
			sends = append(sends, o)
		} else {
			receives = append(receives, o)
		}
	}
	kinds := [][]*operation{sends, receives, a.extras}
	a.ops = nil
	for left := len(sends) + len(receives) + len(a.extras); left > 0; {
		k := &kinds[w.rng.IntN(len(kinds))]
		if w.early && k == &kinds[0] && len(kinds[1]) > 0 && w.rng.IntN(4) > 0 {
			k = &kinds[1] // most receives first: only a posted receive can be offered
		}
		if len(*k) > 0 {
			a.ops = append(a.ops, (*k)[0])
			*k = (*k)[1:]
			left--
		}
	}
}
