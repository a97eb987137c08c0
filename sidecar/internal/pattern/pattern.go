// Package pattern describes how applications use the buffers from which they send, as paper
// 000 counted it: offsets and sizes of successive messages. It is pure.
package pattern

import (
	"iter"
	"math"
)

// Trace is an application's use of its eager buffers, made from Tables 1 and 3 of paper 000
// alone: a part of its accesses is to buffers that are used a number of times each; these
// are a part of the buffers larger than 128 B, of which the others are used once; and the
// remaining accesses are small messages.
type Trace struct {
	Name     string
	Low      int     // sizes of buffers, bytes: spread evenly from low, so that
	Mean     int     // their mean is the paper's (Table 1)
	Uses     int     // of a frequent buffer: the average over processes (Table 1)
	Reused   float64 // part of the accesses (Table 1)
	Frequent float64 // part of the large buffers (Table 3)
}

// Traces are the applications of Table 1.
var Traces = []Trace{
	{"CG", 8, 8, 7904, 0.4294, 0},
	{"LU", 1560, 1600, 3749, 0.9871, 0.329},
	{"AMG", 8, 770, 119, 0.7686, 0.087},
	{"MILC", 8, 2876, 2049, 0.4426, 0.226},
}

// buffersOf is how many buffers of a trace alternate, until each has had its uses.
const buffersOf = 8

// Offsets of frequent buffers, and of those that are used once, 64 bytes apart.
const (
	FrequentAt = 4 << 20
	onceBytes  = 4 << 20
	Extent     = 12 << 20 // of all of them, for as many rounds as the paper's
	SmallBytes = 8
)

// once returns the part of the accesses that is to buffers used once.
func (t *Trace) once() float64 {
	if t.Frequent == 0 {
		return 0
	}
	return t.Reused * (1 - t.Frequent) / t.Frequent / float64(t.Uses)
}

// Messages yields offset and size of each message of a trace, for a number of rounds.
func (t *Trace) Messages(rounds int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		frequent, once := 0, 0
		for i := range rounds {
			off, n := 0, SmallBytes
			switch due := float64(i + 1); {
			case float64(frequent) < due*t.Reused-0.5:
				generation := frequent / (t.Uses * buffersOf)
				slot := generation*buffersOf + frequent%buffersOf
				off, n = FrequentAt+slot*8192, t.size(slot)
				frequent++
			case float64(once) < due*t.once()-0.5:
				off, n = once*64%onceBytes, t.size(once)
				once++
			}
			if !yield(off, n) {
				return
			}
		}
	}
}

// size returns the size of a buffer: by the golden ratio, evenly over the trace's range.
func (t *Trace) size(buffer int) int {
	_, part := math.Modf(float64(buffer+1) * (math.Sqrt(5) - 1) / 2)
	return t.Low + int(2*part*float64(t.Mean-t.Low))
}

// Spectrum yields buffers of which the i-th is used i times, up to 1000, stride bytes apart
// (000, section 5.1.1); only every step-th buffer.
func Spectrum(step, stride int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := step; i <= 1000; i += step {
			for range i {
				if !yield(i / step * stride) {
					return
				}
			}
		}
	}
}
