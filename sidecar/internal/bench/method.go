package bench

// The constants of hack/bench/mpibench.c.
const (
	Repetitions = 5
	BytesMax    = 4 << 20
	kib         = 1 << 10
	mib         = 1 << 20
)

// Method has the repetitions of a run. A quick run is for tests: it runs everything, but
// too few times for figures that mean something.
type Method struct {
	Quick    bool
	BytesMax int // largest size of a series; 0: the test's own
	Trips    int // round trips of each pattern of buffers; 0: the usual number
}

// upTo returns the largest size of a series whose own largest size is n.
func (m Method) upTo(n int) int {
	if m.BytesMax > 0 {
		return min(n, m.BytesMax)
	}
	return n
}

// quickPart divides the repetitions of a quick run.
const quickPart = 50

func (m Method) times(n int) int {
	if m.Quick {
		return max(n/quickPart, 1)
	}
	return n
}

// Series is one size of a test: WarmUp messages, or windows of messages, that are not
// timed, and then Count that are.
type Series struct {
	Bytes, WarmUp, Count int
	Window               int // messages in flight; 1 for a ping-pong
}

// Self returns the series of 8-byte messages of a rank to itself, one at a time.
func (m Method) Self() Series {
	return Series{Bytes: 8, WarmUp: m.times(1000), Count: m.times(50_000), Window: 1}
}

// Latency returns the series of a ping-pong of 8 B to 4 MiB. Count is in round trips.
func (m Method) Latency() []Series {
	var all []Series
	for n := 8; n <= m.upTo(BytesMax); n *= 2 {
		trips := 100
		switch {
		case n <= kib:
			trips = 10_000
		case n <= 64*kib:
			trips = 1_000
		}
		all = append(all, Series{Bytes: n, WarmUp: m.times(100), Count: m.times(trips), Window: 1})
	}
	return all
}

// Bandwidth returns the series of windows in one direction, of 64 KiB to 4 MiB.
func (m Method) Bandwidth() []Series {
	var all []Series
	for n := 64 * kib; n <= m.upTo(BytesMax); n *= 2 {
		s := Series{Bytes: n, WarmUp: 1, Count: m.times(20), Window: 64}
		if n > mib {
			s.Count = m.times(10)
		}
		if n >= 4*mib {
			s.Window = 16
		}
		all = append(all, s)
	}
	return all
}

// Rate returns the series of windows of small messages.
func (m Method) Rate() Series {
	return Series{Bytes: 8, WarmUp: m.times(10), Count: m.times(1000), Window: 64}
}

// OverlapSizes are the message sizes of the overlap test.
var OverlapSizes = []int{64 * kib, mib}

// Triples returns the number of samples of each kind (transfer, compute, total) in a
// repetition of overlap.
func (m Method) Triples() int { return m.times(50) }

// Operations are the collectives that are measured.
var Operations = []string{"barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"}

// Call is one size of a collective. Bytes is the size of what one rank sends to, or
// receives from, one other rank (of bcast, reduce and allreduce: of the whole vector).
type Call struct {
	Op                   string
	Bytes, WarmUp, Count int
}

// collectiveBytesMax bounds a vector, and collectiveSpace the blocks of all ranks
// together, which have to fit into the arena twice.
const (
	collectiveBytesMax = 2 * mib
	collectiveSpace    = 64 * mib
)

// CollectiveBytesMax returns the largest size of a collective of ranks ranks.
func CollectiveBytesMax(ranks int) int {
	n := collectiveBytesMax
	for n > 8 && n*ranks > collectiveSpace {
		n /= 8
	}
	return n
}

// Calls returns the sizes of the collectives: each is eight times the one before, from 8 B on;
// the barrier has no size.
func (m Method) Calls(ops []string, ranks int) []Call {
	var all []Call
	for _, op := range ops {
		if op == "barrier" {
			all = append(all, Call{Op: op, WarmUp: m.times(100), Count: m.times(1000)})
			continue
		}
		for n := 8; n <= m.upTo(CollectiveBytesMax(ranks)); n *= 8 {
			count := 20
			switch {
			case n <= kib:
				count = 1000
			case n <= 64*kib:
				count = 200
			}
			all = append(all, Call{Op: op, Bytes: n, WarmUp: m.times(count / 10), Count: m.times(count)})
		}
	}
	return all
}
