package bench

import "math"

// Check compares a computed value with the value that NPB publishes for it.
type Check struct {
	Name      string  // what the value is, for example "zeta"
	Value     float64 // computed by this run
	Reference float64 // published
	Tolerance float64 // largest relative error allowed; zero requires equality
}

// Error returns the relative error, or the absolute one where the reference is zero.
func (c Check) Error() float64 {
	if c.Reference == 0 {
		return math.Abs(c.Value)
	}
	return math.Abs((c.Value - c.Reference) / c.Reference)
}

// Passed reports whether the error is within the tolerance. A NaN does not pass.
func (c Check) Passed() bool { return c.Error() <= c.Tolerance }

// Result is what a kernel's Run returns, the same on every rank.
type Result struct {
	Benchmark  string // CG, IS, EP, MG, FT or LU
	Class      Class
	Size       string // as NPB prints it: rows, keys, numbers, or NxNxN
	Iterations int    // zero for EP, which has none
	Ranks      int
	Operation  string // what Mops counts millions of
	Seconds    float64
	Mops       float64 // per second, over all ranks
	Verified   bool    // every check passed
	Checks     []Check
}

// Timing completes the result: operations is the benchmark's nominal operation
// count (NPB counts the algorithm's, not the machine's) and seconds the time of
// the slowest rank.
func (r *Result) Timing(operations, seconds float64) {
	r.Seconds = seconds
	if seconds > 0 {
		r.Mops = operations / seconds / 1e6
	}
}

// Verify records the checks and sets Verified when all of them passed.
func (r *Result) Verify(checks ...Check) {
	r.Checks = checks
	r.Verified = len(checks) > 0
	for _, c := range checks {
		r.Verified = r.Verified && c.Passed()
	}
}
