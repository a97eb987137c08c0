package outrigger

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
)

// sameShown is how many numbers of a list an error shows.
const sameShown = 8

// sameOnAll checks that all ranks of the communicator pass the same list. Cart and Include depend on
// that: with different lists the ranks would create communicators that do not match. It costs one
// reduction of two numbers, and more only if the lists differ. All ranks get the error, which names
// one rank that differs.
func (c *Comm) sameOnAll(ctx context.Context, what string, list []int) error {
	hash := hashOf(list)
	most := []int64{hash, -hash}
	if err := Allreduce(ctx, c, most, most, Max); err != nil {
		return err
	}
	if most[0] == -most[1] {
		return nil
	}
	mine, all := make([]int64, 2+sameShown), make([]int64, (2+sameShown)*c.Size())
	mine[0], mine[1] = hash, int64(len(list))
	for i, n := range list[:min(len(list), sameShown)] {
		mine[2+i] = int64(n)
	}
	if err := Allgather(ctx, c, mine, all); err != nil {
		return err
	}
	for r := range c.Size() {
		if theirs := all[(2+sameShown)*r:]; theirs[0] != hash {
			return fmt.Errorf("%w: ranks disagree: %s %s", ErrInvalid, what, difference(mine, theirs[:len(mine)], r))
		}
	}
	return nil // not reached: the list of at least one rank differs
}

// difference returns a text with the lists of this rank and of rank r.
func difference(mine, theirs []int64, r int) string {
	if slices.Equal(mine[1:], theirs[1:]) {
		return fmt.Sprintf("%s here; rank %d gives the same numbers up to there, and differs after them; all ranks must give the same", shown(mine), r)
	}
	return fmt.Sprintf("%s here, %s at rank %d; all ranks must give the same", shown(mine), shown(theirs), r)
}

// hashOf returns a hash that is not negative, so that its negation does not overflow.
func hashOf(list []int) int64 {
	h := fnv.New64a()
	for _, n := range list {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) // never fails
	}
	return int64(h.Sum64() >> 1)
}

// shown formats a list that sameOnAll has gathered: a hash, the length, and the first numbers.
func shown(list []int64) string {
	if n := list[1]; n > sameShown {
		return fmt.Sprintf("%d numbers that begin with %v", n, list[2:2+sameShown])
	}
	return fmt.Sprint(list[2 : 2+list[1]])
}
