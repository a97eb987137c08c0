package coll

// Two levels: the ranks of a pod combine in shared memory; then one leader of each pod
// exchanges with those of other pods, so that each byte crosses between pods once; then the
// leader spreads the result in its pod. Within every pod there are as many rounds as the
// largest pod needs, so that all ranks have the same round numbers.

// setLevels sets the groups of this rank.
func (l *Plan) setLevels() {
	l.local = l.p.Layout.podOf(l.p.Rank)
	if l.p.Kind == Alltoall {
		return // no leaders
	}
	l.leaders = l.p.Layout.leadersWith(l.p.Root, l.p.Rank)
	l.leader = int(l.p.Layout.index[l.leaders.members[l.leaders.rank]])
	if s := l.p.shape(); s.shared() {
		l.column = l.p.Layout.column(l.p.Rank)
		return
	}
	// Rules are for the ranks of a communicator, and not for the leaders.
	s := shape{kind: l.p.Kind, ranks: l.leaders.size, bytes: l.bytes, commutative: true, apart: true}
	l.across = s.choose(nil)
	if l.p.Kind == Reduce && (l.across != DoubleTree || l.p.Count < 2) {
		l.across = Binomial // two segments of one element are more than an operand
	}
}

func (l *Plan) leads() bool { return l.leader == l.local.rank }

// leaderRoot returns the number among the leaders of the leader of the root's pod.
func (l *Plan) leaderRoot() int { return int(l.p.Layout.pod[l.p.Root]) }

// stages returns the number of rounds of each of the three parts; 0 means that the part is
// omitted.
func (l *Plan) stages() (up, across, down int) {
	within := levels(l.p.Layout.largest)
	switch l.p.Kind {
	case Barrier:
		return within, levels(l.leaders.size), within
	case Bcast:
		return 0, broadcastRounds(&l.leaders, l.across, int64(l.p.Count), int64(l.p.Elem)), within
	case Reduce:
		if l.across == DoubleTree {
			t := newDoubleTree(&l.leaders, 0, int64(l.p.Count), int64(l.p.Elem))
			return within, t.rounds(), 0
		}
		return within, levels(l.leaders.size), 0
	case Allgather:
		return 1, gatherRounds(l.leaders.size), within
	}
	if l.column.size > 0 {
		s := l.sharing()
		up, down = s.rounds()
		return up, 0, down
	}
	across, _ = combineSize(&l.leaders, l.across, int64(l.p.Count), int64(l.p.Elem))
	return within, across, within
}

func (l *Plan) twoLevelSize() (rounds int, scratch int64) {
	if l.p.Kind == Alltoall {
		return l.exchangeSize()
	}
	up, across, down := l.stages()
	switch {
	case l.column.size > 0:
		s := l.sharing()
		scratch = s.pieces.len(0)
	case l.p.Kind == Allreduce:
		scratch = l.bytes // operands; the result grows in Out
	case l.p.Kind == Reduce && l.p.Rank == l.p.Root:
		scratch = l.bytes
	case l.p.Kind == Reduce && (l.leads() || treeChildren(l.local.relative(l.leader), l.local.size) > 0):
		scratch = 2 * l.bytes
	}
	return up + across + down, scratch
}

func (l *Plan) twoLevel(w *round, i int) {
	if l.p.Kind == Alltoall {
		l.exchangeRound(w, i)
		return
	}
	up, across, _ := l.stages()
	switch {
	case l.column.size > 0:
		s := l.sharing()
		s.add(w, i)
	case i < up:
		l.levelUp(w, i)
	case i < up+across:
		if l.leads() {
			l.levelAcross(w, i-up)
		}
	default:
		l.levelDown(w, i-up-across)
	}
}

func (l *Plan) levelUp(w *round, i int) {
	switch l.p.Kind {
	case Allgather:
		l.gatherUp(w)
	case Barrier:
		fanIn(w, &l.local, l.leader, i)
	case Reduce:
		v := l.reduceVector()
		treeReduce(w, &l.local, l.leader, &v, i)
	case Allreduce:
		v := l.outVector()
		treeReduce(w, &l.local, l.leader, &v, i)
	}
}

func (l *Plan) levelAcross(w *round, i int) {
	switch l.p.Kind {
	case Allgather:
		l.gatherAcross(w, i)
	case Barrier:
		disseminate(w, &l.leaders, i)
	case Bcast:
		broadcast(w, &l.leaders, l.across, l.leaderRoot(), int64(l.p.Count), int64(l.p.Elem), i)
	case Reduce:
		v := l.reduceVector()
		l.combined(&v)
		if l.across == DoubleTree {
			t := newDoubleTree(&l.leaders, l.leaderRoot(), v.count, v.elem)
			t.reduce(w, &v, i)
			return
		}
		treeReduce(w, &l.leaders, l.leaderRoot(), &v, i)
	case Allreduce:
		v := l.outVector()
		l.combined(&v)
		combine(w, &l.leaders, l.across, &v, i)
	}
}

// combined makes the pod's combined operand the source of v. The leader of a pod of one rank
// has combined nothing: its operand stays the source.
func (l *Plan) combined(v *vector) {
	if l.local.size > 1 {
		v.src = v.acc
	}
}

func (l *Plan) levelDown(w *round, i int) {
	if l.p.Kind == Barrier {
		fanOut(w, &l.local, l.leader, i)
		return
	}
	bytes := l.bytes
	if l.p.Kind == Allgather {
		bytes = l.out.total
	}
	binomialBcast(w, &l.local, l.leader, bytes, i)
}

// gatherUp sends the blocks of a pod to its leader, to their positions in the result.
func (l *Plan) gatherUp(w *round) {
	if !l.leads() {
		w.send(&l.local, l.leader, l.ownBlock(), l.bytes)
		return
	}
	for i := range l.local.size {
		if i != l.leader {
			w.recv(&l.local, i, l.out.at(int(l.local.peer(i))), l.bytes)
		}
	}
	w.copy(l.out.at(l.p.Rank), l.ownBlock(), l.bytes)
}

// gatherRounds returns the rounds of gatherAcross.
func gatherRounds(leaders int) int {
	if leaders == floorPower(leaders) {
		return levels(leaders)
	}
	return leaders - 1
}

// gatherAcross exchanges the blocks of whole pods: by recursive doubling if the number of leaders
// is a power of two, and otherwise in a ring. Neither needs memory besides the result.
func (l *Plan) gatherAcross(w *round, i int) {
	g, part := &l.leaders, l.p.Layout.blocks(position{buf: Out}, l.bytes)
	if g.size == floorPower(g.size) {
		f := foldGroup(g, -1)
		c := cuts{partition: part}
		w.exchangeParts(g, &f, &c, part.at(g.rank), i)
		return
	}
	ringAllgather(w, g, 0, &part, part.at(g.rank), i)
}
