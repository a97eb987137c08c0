package main

import (
	"errors"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// body has no padding, and cell has some.
type (
	body struct {
		Pos, Vel [3]float64
		ID, Kind uint32
	}
	cell struct {
		Level int8
		Value float64
		Near  struct {
			Side uint16
			IDs  [3]uint32
		}
		Last int16
	}
)

// structs sends both types, and uses them in the collectives that accept structures.
func (t *tour) structs() error {
	bodyOf := func(rank, i int) body {
		return body{Pos: [3]float64{float64(rank), float64(i), 0.5}, ID: uint32(rank*100_000 + i), Kind: 7}
	}
	cellOf := func(rank, i int) (c cell) {
		c.Level, c.Value, c.Last = int8(rank), float64(i)/3, int16(-i)
		c.Near.Side, c.Near.IDs = uint16(i), [3]uint32{uint32(rank), uint32(i), 9}
		return c
	}
	if _, err := outrigger.StructOf[struct{ Name string }](); !errors.Is(err, outrigger.ErrInvalid) {
		return fmt.Errorf("a struct with a text in it: %w", err)
	}
	return errors.Join(tourStruct(t, "bodies", bodyOf), tourStruct(t, "cells", cellOf))
}

func tourStruct[T comparable](t *tour, what string, element func(rank, i int) T) error {
	x, err := outrigger.StructOf[T]()
	if err != nil {
		return err
	}
	for _, n := range []int{0, 1, 33, 4000} {
		of := func(rank int) []T {
			list := make([]T, n)
			for i := range list {
				list[i] = element(rank, i)
			}
			return list
		}
		if err := errors.Join(structMessages(t, x, of), structCollectives(t, x, of, n%t.n), structVectors(t, x, element, n, n%t.n)); err != nil {
			return fmt.Errorf("%d %s: %w", n, what, err)
		}
	}
	return nil
}

// structMessages sends each rank's elements to the next rank, and back.
func structMessages[T comparable](t *tour, x *outrigger.Struct[T], of func(rank int) []T) error {
	next, previous := (t.me+1)%t.n, (t.me+t.n-1)%t.n
	mine := of(t.me)
	n := len(mine)
	shared, err := x.Alloc(t.s, n+1)
	if err != nil {
		return err
	}
	r, err := x.Irecv(t.c, shared, previous, 6)
	if err != nil {
		return err
	}
	if err := x.Send(t.ctx, t.c, mine, next, 6); err != nil {
		return err
	}
	st, err := r.Wait(t.ctx)
	if err := errors.Join(err, equal("passed on", shared[:n], of(previous))); err != nil {
		return err
	}
	if st.Source != previous || x.Count(st) != n || st.Bytes != n*x.Size() {
		return fmt.Errorf("status %+v", st)
	}
	back, err := x.Isend(t.c, shared[:n], previous, 6)
	if err != nil {
		return err
	}
	got := make([]T, n)
	if _, err := x.Recv(t.ctx, t.c, got, next, 6); err != nil {
		return err
	}
	_, err = back.Wait(t.ctx)
	return errors.Join(err, equal("sent back", got, mine), x.Free(t.s, shared))
}

func structCollectives[T comparable](t *tour, x *outrigger.Struct[T], of func(rank int) []T, root int) error {
	var whole []T
	for r := range t.n {
		whole = append(whole, of(r)...)
	}
	mine, all := of(t.me), make([]T, len(whole))
	if err := errors.Join(x.Allgather(t.ctx, t.c, mine, all), equal("allgather", all, whole)); err != nil {
		return err
	}
	clear(all)
	if err := x.Gather(t.ctx, t.c, mine, all, root); err != nil {
		return err
	}
	if t.me == root {
		if err := equal("gather", all, whole); err != nil {
			return err
		}
	}
	got := make([]T, len(mine))
	if err := errors.Join(x.Scatter(t.ctx, t.c, all, got, root), equal("scatter", got, mine)); err != nil {
		return err
	}
	return errors.Join(x.Bcast(t.ctx, t.c, got, root), equal("bcast", got, of(root)))
}

// structVectors checks collectives with blocks of different sizes that are not contiguous:
// rank r has n+r elements, in reverse order of the ranks, with a gap of one element.
func structVectors[T comparable](t *tour, x *outrigger.Struct[T], element func(rank, i int) T, n, root int) error {
	block := func(from, to int) []T { // the block that one rank sends to another
		list := make([]T, n+from)
		for i := range list {
			list[i] = element(from, i+to)
		}
		return list
	}
	counts, displs, end := make([]int, t.n), make([]int, t.n), 0
	for r := t.n - 1; r >= 0; r-- {
		counts[r], displs[r] = n+r, end
		end += n + r + 1
	}
	whole := make([]T, end) // the blocks of all ranks at the root
	for r := range t.n {
		copy(whole[displs[r]:], block(r, root))
	}
	mine, all := block(t.me, root), make([]T, end)
	if err := errors.Join(x.Allgatherv(t.ctx, t.c, mine, all, counts, displs), equal("allgatherv", all, whole)); err != nil {
		return err
	}
	clear(all)
	if err := x.Gatherv(t.ctx, t.c, mine, all, counts, displs, root); err != nil {
		return err
	}
	if t.me == root {
		if err := equal("gatherv", all, whole); err != nil {
			return err
		}
	}
	got := make([]T, len(mine))
	if err := errors.Join(x.Scatterv(t.ctx, t.c, all, counts, displs, got, root), equal("scatterv", got, mine)); err != nil {
		return err
	}
	return structExchange(t, x, block, counts, displs, end)
}

// structExchange checks the exchange of blocks between all pairs of ranks. Rank r sends
// blocks of n+r elements.
func structExchange[T comparable](t *tour, x *outrigger.Struct[T], block func(from, to int) []T, counts, displs []int, end int) error {
	var out []T
	each := make([]int, t.n) // this rank's blocks have equal sizes
	want := make([]T, end)
	for r := range t.n {
		out, each[r] = append(out, block(t.me, r)...), counts[t.me]
		copy(want[displs[r]:], block(r, t.me))
	}
	got := make([]T, end)
	if err := errors.Join(x.Alltoallv(t.ctx, t.c, out, each, nil, got, counts, displs), equal("alltoallv", got, want)); err != nil {
		return err
	}
	if counts[0] == 0 { // n is 0: rank 0's blocks are empty
		return nil
	}
	out, want = nil, nil
	for r := range t.n {
		out, want = append(out, block(t.me, r)[0]), append(want, block(r, t.me)[0])
	}
	got = make([]T, len(out))
	return errors.Join(x.Alltoall(t.ctx, t.c, out, got), equal("alltoall", got, want))
}
