package bench

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrRanks is wrapped by the error of a kernel that cannot run on the
// communicator's number of ranks. Every rank gets it, before any message.
var ErrRanks = errors.New("unsuitable number of ranks")

// Log2Ranks returns the exponent of a power-of-two rank count.
func Log2Ranks(ranks int) (int, error) {
	if ranks < 1 || ranks&(ranks-1) != 0 {
		return 0, fmt.Errorf("%w: got %d, start a power of two (1, 2, 4, 8, ...)", ErrRanks, ranks)
	}
	return bits.Len(uint(ranks)) - 1, nil
}

// Block returns the half-open range of 0..n-1 that belongs to part i of parts. The
// first n mod parts parts have one element more than the others.
func Block(n, parts, i int) (lo, hi int) {
	size, extra := n/parts, n%parts
	lo = i*size + min(i, extra)
	hi = lo + size
	if i < extra {
		hi++
	}
	return lo, hi
}
