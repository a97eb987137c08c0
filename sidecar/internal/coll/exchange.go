package coll

// exchange is the part of a rank in an alltoall in two levels. Each rank sends one message to each
// rank of its pod, with the block for that rank and those for the slices that it carries
// (slices.go). It sorts the carried blocks by target, and sends them to the other pods. There the
// receiver sends one message to each rank of the slice. So each byte leaves its pod once.
type exchange struct {
	*Plan
	layout *Layout
	pod    int
	share  int // blocks that this rank gets from each rank of its pod: its own one and those that it carries

	// The parts of Scratch. The first one has what arrives, the second one what is sent on.
	arrived, sorted position
	scratch         int64
}

func (l *Plan) exchange() exchange {
	x := exchange{Plan: l, layout: l.p.Layout, pod: int(l.p.Layout.pod[l.p.Rank])}
	x.share = x.shareOf(l.local.rank)
	in := 0
	for i := l.local.rank; i < x.layout.incomingCount(x.pod); i += l.local.size {
		from, s := x.layout.incoming(x.pod, i)
		in += x.layout.ranks(from) * s.width()
	}
	carried := l.local.size * (x.share - 1)
	first, second := max(l.local.size+carried, in, l.p.Size-l.local.size), max(carried, in)
	x.arrived, x.sorted = position{buf: Scratch}, position{Scratch, x.blocks(first)}
	x.scratch = x.blocks(first + second)
	return x
}

// blocks returns the bytes of n blocks.
func (x *exchange) blocks(n int) int64 { return x.bytes * int64(n) }

// shareOf returns the blocks that rank j of the pod gets from each rank of the pod.
func (x *exchange) shareOf(j int) int {
	n := 1
	for i := j; i < x.layout.carriedCount(x.pod); i += x.local.size {
		n += x.layout.carried(x.pod, i).width()
	}
	return n
}

// forwarded returns the blocks that rank j of the pod has received for rank t of the pod.
func (x *exchange) forwarded(j, t int) (n int) {
	for i := j; i < x.layout.incomingCount(x.pod); i += x.local.size {
		if from, s := x.layout.incoming(x.pod, i); s.has(t) {
			n += x.layout.ranks(from)
		}
	}
	return n
}

// within returns the rounds in which the ranks of the largest pod exchange with each other.
func (x *exchange) within() int { return linearRounds(x.layout.largest) }

// reach returns how many distances between pods a round serves, so that a rank has about
// linearWindow messages for other pods in it, or those for one pod.
func (x *exchange) reach() int {
	return max(1, linearWindow*x.layout.smallest/slicesOf(x.layout.largest, x.layout.width))
}

func (x *exchange) between() int { return (x.layout.pods() - 2 + x.reach()) / x.reach() }

func (l *Plan) exchangeSize() (rounds int, scratch int64) {
	x := l.exchange()
	return 2 + 2*x.within() + x.between(), x.scratch
}

func (l *Plan) exchangeRound(w *round, i int) {
	x := l.exchange()
	within, between := x.within(), x.between()
	switch {
	case i == 0:
		x.bundle(w)
	case i <= within:
		x.handOver(w, i-1)
	case i == within+1:
		x.sort(w)
	case i <= within+1+between:
		x.carry(w, i-within-2)
		if i == within+1+between {
			x.sortReceived(w)
		}
	default:
		i -= within + between + 2
		x.deliver(w, i)
		if i == within-1 {
			x.place(w)
		}
	}
}

// pack copies the blocks of ranks from a buffer with a block for each rank to a packed position,
// and returns the position behind. unpack copies them back.
func (x *exchange) pack(w *round, packed position, members []int32) position {
	for len(members) > 0 {
		n := consecutive(members)
		w.copy(packed, x.in.at(int(members[0])), x.blocks(n))
		packed, members = packed.plus(x.blocks(n)), members[n:]
	}
	return packed
}

func (x *exchange) unpack(w *round, packed position, members []int32) position {
	for len(members) > 0 {
		n := consecutive(members)
		w.copy(x.out.at(int(members[0])), packed, x.blocks(n))
		packed, members = packed.plus(x.blocks(n)), members[n:]
	}
	return packed
}

// consecutive returns how many ranks at the beginning follow each other.
func consecutive(members []int32) int {
	n := 1
	for n < len(members) && members[n] == members[0]+int32(n) {
		n++
	}
	return n
}

// bundle packs the blocks for each rank of the pod in Out, which has no other use before sort. The
// own ones are placed where those of the others will arrive.
func (x *exchange) bundle(w *round) {
	out := position{buf: Out}
	for j := range x.local.size {
		to := &out
		if j == x.local.rank {
			own := x.arrived.plus(x.blocks(j * x.share))
			to = &own
		}
		*to = x.pack(w, *to, x.layout.membersOf(x.pod, j, j+1))
		for i := j; i < x.layout.carriedCount(x.pod); i += x.local.size {
			s := x.layout.carried(x.pod, i)
			*to = x.pack(w, *to, x.layout.membersOf(s.pod, s.first, s.end))
		}
	}
}

// exchanges reports whether round i of those within the pod is that of a message between two ranks.
func (x *exchange) exchanges(i, from, to int) bool {
	distance := x.local.wrap(to - from)
	return distance > 0 && (distance-1)/linearWindow == i
}

// handOver sends the blocks for each rank of the pod, and those that it carries.
func (x *exchange) handOver(w *round, i int) {
	g := &x.local
	for j := range g.size {
		if x.exchanges(i, j, g.rank) {
			w.recv(g, j, x.arrived.plus(x.blocks(j*x.share)), x.blocks(x.share))
		}
	}
	from := position{buf: Out}
	for j := range g.size {
		if j == g.rank {
			continue
		}
		bytes := x.blocks(x.shareOf(j))
		if x.exchanges(i, g.rank, j) {
			w.send(g, j, from, bytes)
		}
		from = from.plus(bytes)
	}
}

// sort takes the own blocks out of those that have arrived from the pod, and packs the others by
// target.
func (x *exchange) sort(w *round) {
	for i := range x.local.size {
		w.copy(x.out.at(int(x.local.peer(i))), x.arrived.plus(x.blocks(i*x.share)), x.bytes)
	}
	to := x.sorted
	for block := 1; block < x.share; block++ {
		for i := range x.local.size {
			w.copy(to, x.arrived.plus(x.blocks(i*x.share+block)), x.bytes)
			to = to.plus(x.bytes)
		}
	}
}

// carry sends the blocks for other pods, in the round of the distance to the pod.
func (x *exchange) carry(w *round, i int) {
	y := x.layout
	at := x.arrived
	for k := x.local.rank; k < y.incomingCount(x.pod); k += x.local.size {
		pod, s := y.incoming(x.pod, k)
		bytes := x.blocks(y.ranks(pod) * s.width())
		if (y.distance(pod, x.pod)-1)/x.reach() == i {
			w.recv(&x.all, y.carrier(pod, s), at, bytes)
		}
		at = at.plus(bytes)
	}
	from := x.sorted
	for k := x.local.rank; k < y.carriedCount(x.pod); k += x.local.size {
		s := y.carried(x.pod, k)
		bytes := x.blocks(x.local.size * s.width())
		if (y.distance(x.pod, s.pod)-1)/x.reach() == i {
			w.send(&x.all, y.receiver(x.pod, s), from, bytes)
		}
		from = from.plus(bytes)
	}
}

// sortReceived packs the blocks that have arrived from other pods by target.
func (x *exchange) sortReceived(w *round) {
	to := x.sorted
	for t := range x.local.size {
		at := x.arrived
		for i := x.local.rank; i < x.layout.incomingCount(x.pod); i += x.local.size {
			from, s := x.layout.incoming(x.pod, i)
			bytes := x.blocks(x.layout.ranks(from)) // for one rank
			if s.has(t) {
				w.copy(to, at.plus(bytes*int64(t-s.first)), bytes)
				to = to.plus(bytes)
			}
			at = at.plus(bytes * int64(s.width()))
		}
	}
}

// deliver sends the blocks of other pods to their targets.
func (x *exchange) deliver(w *round, i int) {
	g := &x.local
	at := x.arrived
	for j := range g.size {
		bytes := x.blocks(x.forwarded(j, g.rank))
		if x.exchanges(i, j, g.rank) {
			w.recv(g, j, at, bytes)
		}
		at = at.plus(bytes)
	}
	from := x.sorted
	for t := range g.size {
		bytes := x.blocks(x.forwarded(g.rank, t))
		if x.exchanges(i, g.rank, t) {
			w.send(g, t, from, bytes)
		}
		from = from.plus(bytes)
	}
}

// place copies the blocks of other pods to their positions in the result.
func (x *exchange) place(w *round) {
	at, own := x.arrived, x.sorted
	for t := range x.local.rank {
		own = own.plus(x.blocks(x.forwarded(x.local.rank, t)))
	}
	for j := range x.local.size {
		packed := at
		if j == x.local.rank {
			packed = own
		}
		for i := j; i < x.layout.incomingCount(x.pod); i += x.local.size {
			if from, s := x.layout.incoming(x.pod, i); s.has(x.local.rank) {
				packed = x.unpack(w, packed, x.layout.membersOf(from, 0, x.layout.ranks(from)))
			}
		}
		at = at.plus(x.blocks(x.forwarded(j, x.local.rank)))
	}
}
