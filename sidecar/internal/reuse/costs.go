package reuse

import (
	"math"
	"math/bits"
)

// Size classes: four for each power of two, from 64 bytes on.
const (
	classBits  = 2
	classFirst = 6
	classLast  = 24
	classCount = (classLast-classFirst)<<classBits + 1
)

// class returns the size class of a message of n bytes.
func class(n uint64) int {
	if n < 1<<classFirst {
		return 0
	}
	if n >= 1<<classLast {
		return classCount - 1
	}
	e := bits.Len64(n) - 1
	return (e-classFirst)<<classBits + int(n>>(e-classBits))&(1<<classBits-1)
}

// classBytes returns the smallest message of a class.
func classBytes(k int) float64 {
	e, part := k>>classBits+classFirst, k&(1<<classBits-1)
	return float64(uint64(1)<<e) * (1 + float64(part)/(1<<classBits))
}

// costs are the estimates, in nanoseconds, from which the thresholds are computed.
type costs struct {
	copy     [pathCount][classCount]float64
	register [classCount]float64
	overhead [pathCount]float64
}

// price has the thresholds of one class and path.
type price struct {
	gain     float32 // C - V: what a gather saves; 0 or less: nothing
	register float32 // R
	trigger  float32 // rent at which registering is considered: f * R
}

// Sample is a measurement: the duration of an operation on a number of bytes.
type Sample struct {
	Bytes uint64
	NS    float64
}

// Calibrate sets the costs of a path from measurements made at start-up: copies as the path
// makes them, registrations as the link makes them, and the overhead V of finding a buffer
// and its registration. Sizes between and beyond the measured ones are interpolated.
func (t *Table) Calibrate(p Path, copies, registrations []Sample, overheadNS float64) {
	for k := range classCount {
		t.costs.copy[p][k] = interpolate(copies, classBytes(k))
		t.costs.register[k] = interpolate(registrations, classBytes(k))
	}
	t.costs.overhead[p] = overheadNS
	t.reprice()
}

// interpolate returns the value at a size on the lines between samples, which are in order
// of their size; beyond the ends the last line continues.
func interpolate(s []Sample, bytes float64) float64 {
	switch len(s) {
	case 0:
		return 0
	case 1:
		return s[0].NS
	}
	i := 1
	for i < len(s)-1 && float64(s[i].Bytes) < bytes {
		i++
	}
	a, b := s[i-1], s[i]
	at := (bytes - float64(a.Bytes)) / float64(b.Bytes-a.Bytes)
	return max(0, a.NS+at*(b.NS-a.NS))
}

// An observation counts for 1/weight of an estimate, and for at most outlier times the
// estimate: the thread may have been preempted during the measurement.
const (
	weight  = 16
	outlier = 4
)

func refine(estimate *float64, ns float64) {
	if *estimate <= 0 {
		*estimate = ns
		return
	}
	*estimate += (min(ns, outlier**estimate) - *estimate) / weight
}

// ObserveCopy refines the cost of copying n bytes on a path.
func (t *Table) ObserveCopy(p Path, n uint64, ns float64) {
	k := class(n)
	refine(&t.costs.copy[p][k], ns)
	t.repriceClass(p, k)
}

// ObserveRegister refines the cost of registering n bytes.
func (t *Table) ObserveRegister(n uint64, ns float64) {
	k := class(n)
	refine(&t.costs.register[k], ns)
	for p := range pathCount {
		t.repriceClass(p, k)
	}
}

// ObserveOverhead refines V.
func (t *Table) ObserveOverhead(p Path, ns float64) {
	refine(&t.costs.overhead[p], ns)
	for k := range classCount {
		t.repriceClass(p, k)
	}
}

func (t *Table) reprice() {
	for p := range pathCount {
		for k := range classCount {
			t.repriceClass(p, k)
		}
	}
}

func (t *Table) repriceClass(p Path, k int) {
	r := t.costs.register[k]
	t.prices[p][k] = price{
		gain:     float32(t.costs.copy[p][k] - t.costs.overhead[p]),
		register: float32(r),
		trigger:  float32(t.cfg.Fraction * r),
	}
}

// MinUses returns n_min = R/(C-V), the number of uses from which on registering a buffer of
// n bytes pays, or +Inf if it never does.
func (t *Table) MinUses(p Path, n uint64) float64 {
	x := t.prices[p][class(n)]
	if x.gain <= 0 {
		return math.Inf(1)
	}
	return float64(x.register) / float64(x.gain)
}

// Worth reports whether a gather of n bytes saves anything.
func (t *Table) Worth(p Path, n uint64) bool {
	return n >= t.cfg.MinBytes && t.prices[p][class(n)].gain > 0
}
