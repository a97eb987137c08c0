package sim

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// sizes are message lengths at the edges of the protocols.
var sizes = []int{0, 1, 8, 31, 32, 33, 64, 65, 1000, 2048, 4096, 8192, 8193, 20_000, 65_535, 65_536, 65_537, 150_000}

// plan gives every application its operations. Every message has its receive;
// a rank receives either all its messages by source and tag, in an order of its
// own, or all of them by wildcard.
func (w *world) plan() {
	ranks := len(w.apps)
	byRank := make([]*app, ranks)
	for _, a := range w.apps {
		byRank[a.rank] = a
	}
	w.apps = byRank
	wild := make([]map[[2]uint64][]byte, ranks)
	for r := range wild {
		// A wildcard alone does not notice a sidecar that nobody talks to.
		if w.rng.IntN(2) == 0 && w.victim < 0 {
			wild[r] = map[[2]uint64][]byte{}
		}
	}
	for range 4 + w.rng.IntN(40) {
		src, dst := uint32(w.rng.IntN(ranks)), uint32(w.rng.IntN(ranks))
		a, b := w.apps[src], w.apps[dst]
		n := sizes[w.rng.IntN(len(sizes))]
		seq := a.sentTo(dst)
		tag := uint64(w.rng.IntN(3))
		if wild[dst] != nil {
			tag = uint64(seq)
		}
		p := content(src, dst, tag, seq, n)
		a.ops = append(a.ops, w.sending(dst, tag, seq, p))
		r := w.receiving(src, tag, p)
		if wild[dst] != nil {
			wild[dst][[2]uint64{uint64(src), tag}] = p
			r.peer, r.tag, r.ignore, r.want = shm.AnySource, 0, ^uint64(0), wild[dst]
			r.class, r.room = w.wildClass(), sizes[len(sizes)-1]
		}
		b.ops = append(b.ops, r)
	}
	for _, a := range w.apps {
		w.mix(a)
		for i, o := range a.ops {
			o.req = uint32(i)
		}
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
	if w.rng.IntN(2) == 0 {
		return shm.ClassArena
	}
	return shm.ClassStaged
}

func (w *world) sending(dst uint32, tag uint64, seq int, p []byte) *operation {
	o := &operation{send: true, peer: dst, tag: tag, seq: seq, payload: p}
	classes := []shm.Class{shm.ClassArena, shm.ClassStaged}
	if len(p) <= shm.InlineMax {
		classes = append(classes, shm.ClassInline, shm.ClassInline)
	}
	if len(p) <= 8192 {
		classes = append(classes, shm.ClassSlab)
	}
	o.class = classes[w.rng.IntN(len(classes))]
	switch {
	case o.class == shm.ClassInline && w.rng.IntN(2) == 0:
		o.flags = shm.FlagSilent
	case w.rng.IntN(4) == 0:
		o.flags = shm.FlagSync
	}
	return o
}

func (w *world) receiving(src uint32, tag uint64, p []byte) *operation {
	o := &operation{peer: src, tag: tag, payload: p, room: len(p)}
	classes := []shm.Class{shm.ClassArena, shm.ClassStaged}
	if len(p) <= shm.InlineMax {
		classes = append(classes, shm.ClassInline)
	}
	if len(p) <= 8192 {
		classes = append(classes, shm.ClassSlab)
	}
	o.class = classes[w.rng.IntN(len(classes))]
	return o
}

// mix interleaves an application's sends and receives at random. Sends keep
// their order, and so do the receives of one source and tag: that is what
// non-overtaking is about.
func (w *world) mix(a *app) {
	var sends, receives []*operation
	for _, o := range a.ops {
		if o.send {
			sends = append(sends, o)
		} else {
			receives = append(receives, o)
		}
	}
	a.ops = a.ops[:0]
	for len(sends)+len(receives) > 0 {
		if len(receives) > 0 && (len(sends) == 0 || w.rng.IntN(2) == 0) {
			a.ops, receives = append(a.ops, receives[0]), receives[1:]
		} else {
			a.ops, sends = append(a.ops, sends[0]), sends[1:]
		}
	}
}
