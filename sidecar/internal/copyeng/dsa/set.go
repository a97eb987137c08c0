package dsa

import "math/bits"

// set is a set of slots.
type set uint64

func fullSet(n int) set { return ^set(0) >> (slotsMax - n) }

func (s set) len() int      { return bits.OnesCount64(uint64(s)) }
func (s set) first() int    { return bits.TrailingZeros64(uint64(s)) }
func (s *set) add(i int)    { *s |= 1 << i }
func (s *set) remove(i int) { *s &^= 1 << i }
