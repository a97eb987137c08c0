package is

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"

// numbersPerKey random numbers are added for a key, which makes the keys
// roughly Gaussian around the middle of the range.
const numbersPerKey = 4

// generate writes keys first, first+1, ... of the global sequence to keys.
func generate(p problem, first int, keys []int32) {
	s := randlc.New(randlc.Seed)
	s.Skip(uint64(first) * numbersPerKey)
	quarter := float64(p.maxKey() / numbersPerKey)
	for i := range keys {
		// The order of the additions is part of the definition: rounding
		// could move a key.
		sum := s.Next()
		sum += s.Next()
		sum += s.Next()
		sum += s.Next()
		keys[i] = int32(quarter * sum)
	}
}

// plant changes two keys on the rank that has the start of the sequence, so that
// iteration i cannot reuse results of the iteration before.
func plant(p problem, i int, keys []int32) {
	keys[i] = int32(i)
	keys[i+iterations] = int32(p.maxKey() - i)
}
