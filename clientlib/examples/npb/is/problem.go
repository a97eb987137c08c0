package is

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// problem is one class: 2^log2Keys keys below 2^log2Range, sorted by their
// leading bits into 2^log2Buckets buckets, and five keys whose ranks are
// published.
type problem struct {
	log2Keys, log2Range, log2Buckets int
	probes                           [probeCount]probe
}

// probe is a key of partial verification. The keys that every iteration plants
// at both ends of the range move its rank by slope each iteration.
type probe struct {
	index  int   // position in the unsorted sequence of all keys
	rank   int64 // published rank
	slope  int64
	offset int64 // the iteration in which the published rank holds
}

// expected returns the probe's rank in the given iteration.
func (p probe) expected(iteration int) int64 {
	return p.rank + p.slope*(int64(iteration)-p.offset)
}

const (
	iterations = 10
	probeCount = 5
)

var problems = map[bench.Class]problem{
	bench.S: {log2Keys: 16, log2Range: 11, log2Buckets: 9, probes: [probeCount]probe{
		{48427, 0, 1, 0}, {17148, 18, 1, 0}, {23627, 346, 1, 0}, {62548, 64917, -1, 0}, {4431, 65463, -1, 0},
	}},
	bench.W: {log2Keys: 20, log2Range: 16, log2Buckets: 10, probes: [probeCount]probe{
		{357773, 1249, 1, 2}, {934767, 11698, 1, 2}, {875723, 1039987, -1, 0}, {898999, 1043896, -1, 0}, {404505, 1048018, -1, 0},
	}},
	bench.A: {log2Keys: 23, log2Range: 19, log2Buckets: 10, probes: [probeCount]probe{
		{2112377, 104, 1, 1}, {662041, 17523, 1, 1}, {5336171, 123928, 1, 1}, {3642833, 8288932, -1, 1}, {4250760, 8388264, -1, 1},
	}},
	bench.B: {log2Keys: 25, log2Range: 21, log2Buckets: 10, probes: [probeCount]probe{
		{41869, 33422937, -1, 0}, {812306, 10244, 1, 0}, {5102857, 59149, 1, 0}, {18232239, 33135281, -1, 0}, {26860214, 99, 1, 0},
	}},
}

func (p problem) keys() int    { return 1 << p.log2Keys }
func (p problem) maxKey() int  { return 1 << p.log2Range }
func (p problem) buckets() int { return 1 << p.log2Buckets }

// shift turns a key into its bucket.
func (p problem) shift() int { return p.log2Range - p.log2Buckets }
