package coll

// setBuffers sets the partitions of the large buffers, and the extents of In and Out.
func (l *Plan) setBuffers() {
	p := &l.p
	switch p.Kind {
	case Bcast:
		l.outExtent = l.bytes
	case Reduce:
		l.inExtent = l.bytes
		if p.Rank == p.Root {
			l.outExtent = l.bytes
		}
	case Allreduce, Scan:
		l.inExtent, l.outExtent = l.bytes, l.bytes
	case ReduceScatter:
		l.in, l.inExtent = l.divide(In, p.Counts, nil, true)
		l.outExtent = l.blockBytes(&l.in)
	case Gather, Gatherv:
		l.inExtent = l.bytes
		if p.Rank == p.Root {
			l.out, l.outExtent = l.divide(Out, p.Counts, p.Displs, p.Kind == Gatherv)
			l.inExtent = l.blockBytes(&l.out)
		}
	case Scatter, Scatterv:
		l.outExtent = l.bytes
		if p.Rank == p.Root {
			l.in, l.inExtent = l.divide(In, p.Counts, p.Displs, p.Kind == Scatterv)
			l.outExtent = l.blockBytes(&l.in)
		}
	case Allgather, Allgatherv:
		l.out, l.outExtent = l.divide(Out, p.Counts, p.Displs, p.Kind == Allgatherv)
		l.inExtent = l.blockBytes(&l.out)
	case Alltoall, Alltoallv:
		l.in, l.inExtent = l.divide(In, p.SCounts, p.SDispls, p.Kind == Alltoallv)
		l.out, l.outExtent = l.divide(Out, p.RCounts, p.RDispls, p.Kind == Alltoallv)
	}
	l.settleInPlace()
}

// blockBytes returns the length of the own block.
func (l *Plan) blockBytes(part *partition) int64 { return part.len(l.p.Rank) }

// divide returns the partition of a buffer with one block for each rank, and its extent. If
// varied is set, kinds that have counts use them.
func (l *Plan) divide(buf Buf, counts, displs []int64, varied bool) (partition, int64) {
	base, elem := position{buf: buf}, int64(l.p.Elem)
	if !varied || counts == nil {
		part := blocks(base, l.bytes, l.p.Size)
		return part, part.total
	}
	if displs == nil {
		displs = packed(counts)
	}
	part := partition{base: base, counts: counts, displs: displs, elem: elem}
	return part, part.extent(l.p.Size)
}

// packed returns the positions of blocks that follow each other, and their end.
func packed(counts []int64) []int64 {
	displs := make([]int64, len(counts)+1)
	for i, c := range counts {
		displs[i+1] = displs[i] + c
	}
	return displs
}

// settleInPlace makes the extents equal if In and Out are one buffer.
func (l *Plan) settleInPlace() {
	if l.p.InPlace {
		l.inExtent = max(l.inExtent, l.outExtent)
		l.outExtent = l.inExtent
	}
}

// contribution returns the position of the operand of a reduction.
func (l *Plan) contribution() position {
	if l.p.InPlace {
		return position{buf: Out}
	}
	return position{buf: In}
}

// ownBlock returns the source of this rank's block in the gathered buffer.
func (l *Plan) ownBlock() position {
	if l.p.InPlace {
		return l.out.at(l.p.Rank)
	}
	return position{buf: In}
}

// ownTarget returns the destination of this rank's block of the scattered buffer.
func (l *Plan) ownTarget() position {
	if l.p.InPlace {
		return l.in.at(l.p.Rank)
	}
	return position{buf: Out}
}

// alone adds the only round of a communicator of one rank.
func (l *Plan) alone(w *round) {
	switch l.p.Kind {
	case Reduce, Allreduce, Scan:
		w.copy(position{buf: Out}, l.contribution(), l.bytes)
	case ReduceScatter:
		w.copy(position{buf: Out}, l.contribution(), l.in.len(0))
	case Gather, Gatherv, Allgather, Allgatherv:
		w.copy(l.out.at(0), l.ownBlock(), l.out.len(0))
	case Scatter, Scatterv:
		w.copy(l.ownTarget(), l.in.at(0), l.in.len(0))
	case Alltoall, Alltoallv:
		w.copy(l.out.at(0), l.in.at(0), min(l.in.len(0), l.out.len(0)))
	}
}
