// Package pattern is how applications use the buffers that they send from, as paper 000
// counted it: places and sizes of messages, one after another. It is pure.
package pattern

import (
	"iter"
	"math"
)

// Trace is an application's use of its eager buffers, made from Tables 1 and 3 of
// paper 000 alone: of its accesses a part is to buffers that are used so many times
// each; those are so large a part of the buffers that are larger than 128 B, of which
// the others are used once; and what is left of the accesses are small messages.
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

// buffersOf is how many buffers of a trace take turns, until each has had its uses.
const buffersOf = 8

// Where frequent buffers are, and those that are used once, 64 bytes after each other.
const (
	FrequentAt = 4 << 20
	onceBytes  = 4 << 20
	Extent     = 12 << 20 // of all of them, for so many rounds as the paper's
	SmallBytes = 8
)

// once is the part of the accesses that is to buffers used once.
func (t *Trace) once() float64 {
	if t.Frequent == 0 {
		return 0
	}
	return t.Reused * (1 - t.Frequent) / t.Frequent / float64(t.Uses)
}

// Messages yields place and size of each message of a trace: rounds of them.
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

// size is that of a buffer: by the golden ratio, evenly over the trace's range.
func (t *Trace) size(buffer int) int {
	_, part := math.Modf(float64(buffer+1) * (math.Sqrt(5) - 1) / 2)
	return t.Low + int(2*part*float64(t.Mean-t.Low))
}

// Spectrum is buffers of which the i-th is used i times, to 1000, each so many bytes
// after the one before (000, section 5.1.1); of the buffers every step-th.
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
