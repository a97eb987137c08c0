package outrigger

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
)

// sameShown is how much of a list of another rank is told.
const sameShown = 8

// sameOnAll checks that all ranks of the communicator give the same list, which is
// what Cart and Include are built on: with different ones they would make
// communicators that do not fit each other. It is a reduction of two numbers; only a
// disagreement costs more. All ranks get the error, and name one that differs.
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
	return nil // not reached: somebody differs
}

// difference tells how the lists of this rank and of rank r differ.
func difference(mine, theirs []int64, r int) string {
	if slices.Equal(mine[1:], theirs[1:]) {
		return fmt.Sprintf("%s here; rank %d gives the same up to there, and others then; all ranks give the same", shown(mine), r)
	}
	return fmt.Sprintf("%s here, %s at rank %d; all ranks give the same", shown(mine), shown(theirs), r)
}

// hashOf is positive, so that it has a negative.
func hashOf(list []int) int64 {
	h := fnv.New64a()
	for _, n := range list {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) // never fails
	}
	return int64(h.Sum64() >> 1)
}

// shown is a list as sameOnAll tells it.
func shown(told []int64) string {
	if n := told[1]; n > sameShown {
		return fmt.Sprintf("%d numbers that begin with %v", n, told[2:2+sameShown])
	}
	return fmt.Sprint(told[2 : 2+told[1]])
}
