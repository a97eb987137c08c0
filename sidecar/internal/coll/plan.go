package coll

// Plan is the part of one rank in one collective operation. It does not change after NewPlan,
// and may be run any number of times.
type Plan struct {
	p         Params
	algorithm Algorithm
	all       group
	bytes     int64 // Count elements
	// The large buffers of the kinds that have one: the blocks that a root scatters or every
	// rank sends to all, and the blocks that a root or every rank gathers.
	in, out partition

	byPod          group     // all ranks, pod by pod, if the layout pays
	local, leaders group     // groups of two-level plans
	leader         int       // number within local of the rank that is in leaders
	across         Algorithm // by which the leaders broadcast or combine
	column         group     // the ranks that combine this rank's share; none: the vector has no shares

	rounds                       int
	inExtent, outExtent, scratch int64
}

// NewPlan checks p and returns the plan of rank p.Rank. Errors name the field and the allowed
// values; no value in p makes it panic. Its memory is proportional to the slices of p and does
// not depend on the other values.
func NewPlan(p Params) (*Plan, error) {
	l := new(Plan)
	if err := l.init(p); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Plan) init(p Params) error {
	if err := p.validate(); err != nil {
		return err
	}
	l.p = p
	l.all = group{rank: p.Rank, size: p.Size}
	l.bytes = int64(p.Count) * int64(p.Elem)
	l.setBuffers()
	if p.Size > 1 {
		if err := l.setAlgorithm(); err != nil {
			return err
		}
	}
	if l.p.Layout.pays() {
		l.byPod = l.p.Layout.inOrder(p.Rank)
	}
	if l.algorithm == TwoLevel {
		l.setLevels()
	}
	return l.measure()
}

// setAlgorithm sets the algorithm that p names or, for Auto, the one that is chosen.
func (l *Plan) setAlgorithm() error {
	if l.algorithm = l.p.Algorithm; l.algorithm != Auto {
		return l.algorithm.fits(&l.p)
	}
	s := l.p.shape()
	l.algorithm = s.choose(l.p.Table)
	return nil
}

// measure sets the number of rounds and the scratch memory of the algorithm.
func (l *Plan) measure() error {
	switch {
	case l.p.Size == 1:
		l.rounds = 1
	case l.algorithm == TwoLevel:
		l.rounds, l.scratch = l.twoLevelSize()
	default:
		l.rounds, l.scratch = l.flatSize()
	}
	return checkBytes("Scratch", l.scratch)
}

func (l *Plan) flatSize() (rounds int, scratch int64) {
	switch l.p.Kind {
	case Barrier:
		return levels(l.p.Size), 0
	case Bcast:
		return l.bcastSize()
	case Reduce:
		return l.reduceSize()
	case Allreduce:
		return l.allreduceSize()
	case Scan:
		return l.scanSize()
	case ReduceScatter:
		return l.reduceScatterSize()
	case Gather, Gatherv:
		return l.gatherSize()
	case Scatter, Scatterv:
		return l.scatterSize()
	case Allgather, Allgatherv:
		return l.allgatherSize()
	}
	return l.alltoallSize()
}

// Rounds returns the number of rounds, which is the same on all ranks.
func (l *Plan) Rounds() int { return l.rounds }

// Root returns the root's comm rank, or -1 if the kind has none.
func (l *Plan) Root() int {
	if !l.p.Kind.Rooted() {
		return -1
	}
	return l.p.Root
}

// Scratch returns how many bytes of scratch memory this rank needs.
func (l *Plan) Scratch() int64 { return l.scratch }

// Extents returns how many bytes from the start of In and of Out the plan may
// touch. A caller that runs a plan for an untrusted client checks them first.
func (l *Plan) Extents() (in, out int64) { return l.inExtent, l.outExtent }

// Algorithm returns the algorithm of the plan, or Auto if there is one rank, which needs none.
func (l *Plan) Algorithm() Algorithm { return l.algorithm }

// Round appends the steps of round i to dst and returns it. All Send and Recv steps of a round
// are started together; none of their memory overlaps. When they are complete, the Fold and
// Copy steps are run in the given order. Round allocates only to grow dst; a round has at most
// 2*Size+8 steps.
func (l *Plan) Round(i int, dst []Step) []Step {
	if i < 0 || i >= l.rounds {
		return dst
	}
	w := round{steps: dst, tag: uint32(i)}
	switch {
	case l.p.Size == 1:
		l.alone(&w)
	case l.algorithm == TwoLevel:
		l.twoLevel(&w, i)
	default:
		l.flat(&w, i)
	}
	return w.steps
}

func (l *Plan) flat(w *round, i int) {
	switch l.p.Kind {
	case Barrier:
		disseminate(w, &l.all, i)
	case Bcast:
		l.bcast(w, i)
	case Reduce:
		l.reduce(w, i)
	case Allreduce:
		l.allreduce(w, i)
	case Scan:
		l.scan(w, i)
	case ReduceScatter:
		l.reduceScatter(w, i)
	case Gather, Gatherv:
		l.gather(w, i)
	case Scatter, Scatterv:
		l.scatter(w, i)
	case Allgather, Allgatherv:
		l.allgather(w, i)
	case Alltoall, Alltoallv:
		l.alltoall(w, i)
	}
}

// ScratchBytes returns Scratch of the plan for p, so that a client can
// allocate before it asks for the operation.
func ScratchBytes(p Params) (int64, error) {
	l, err := NewPlan(p)
	if err != nil {
		return 0, err
	}
	return l.scratch, nil
}
