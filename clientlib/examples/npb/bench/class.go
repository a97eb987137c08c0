// Package bench has the common parts of the NAS Parallel Benchmark kernels: the
// problem classes, the result and its NPB-style report, the division of work
// among ranks, and message buffers in arena memory.
//
// The benchmarks are those of Bailey et al., "The NAS Parallel Benchmarks"
// (RNR-94-007) in the message-passing form of NAS-95-020 (NPB 2) and NPB 3.x,
// rewritten in Go on the Outrigger client library. Problem sizes, random
// streams, operation counts and reference values are NPB's. The code is not:
// its results are comparable to official results, but are not official.
package bench

import (
	"fmt"
	"strings"
)

// Class is an NPB problem class; the kernels map it to their sizes.
type Class byte

// The classes that every kernel knows: S is a sample that runs in well under a
// second, W a workstation of the 1990s, A and B the small production sizes.
const (
	S Class = 'S'
	W Class = 'W'
	A Class = 'A'
	B Class = 'B'
)

// Classes lists the known classes by growing size.
func Classes() []Class { return []Class{S, W, A, B} }

// ParseClass accepts a class letter in either case.
func ParseClass(s string) (Class, error) {
	for _, c := range Classes() {
		if strings.EqualFold(s, c.String()) {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown class %q: choose S, W, A or B", s)
}

// String returns the class letter.
func (c Class) String() string { return string(rune(c)) }

// Lookup finds a kernel's problem of the given class; the error names the
// classes that exist.
func Lookup[P any](problems map[Class]P, c Class) (P, error) {
	p, ok := problems[c]
	if !ok {
		return p, fmt.Errorf("unknown class %q: choose S, W, A or B", c.String())
	}
	return p, nil
}
