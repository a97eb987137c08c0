package coll

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// story is one collective operation over all ranks, with its expected results.
type story struct {
	base    Params // everything but Rank
	ordered bool   // use the operation that is not commutative
	seed    uint64
	places  int // 1: every second rank of an allreduce is in place; 2: all are
	// Counts and displacements of the v kinds, from sender to receiver.
	counts func(from, to int) int64
}

func (s *story) String() string {
	return fmt.Sprintf("%v by %v, %d ranks, root %d, count %d, elem %d, in place %t, commutative %t, pods %v, seed %d",
		s.base.Kind, s.base.Algorithm, s.base.Size, s.base.Root, s.base.Count, s.base.Elem,
		s.base.InPlace, s.base.Commutative, s.base.Pods, s.seed)
}

// gap is the space between blocks with displacements.
const gap = 2

// spread returns counts and displacements with gaps, in falling order, so that no plan is
// right by chance.
func spread(n int, count func(i int) int64) (counts, displs []int64) {
	counts, displs = make([]int64, n), make([]int64, n)
	at := int64(1)
	for i := n - 1; i >= 0; i-- {
		counts[i], displs[i] = count(i), at
		at += counts[i] + gap
	}
	return counts, displs
}

// params returns the Params of one rank.
func (s *story) params(rank int) Params {
	p := s.base
	p.Rank = rank
	if s.places > 0 {
		p.InPlace = s.places == 2 || rank%2 == 0
	}
	if s.counts == nil {
		return p
	}
	switch p.Kind {
	case ReduceScatter, Allgatherv:
		p.Counts, p.Displs = spread(p.Size, func(i int) int64 { return s.counts(i, i) })
	case Gatherv, Scatterv:
		p.Count = int(s.counts(rank, rank))
		if rank == p.Root {
			p.Counts, p.Displs = spread(p.Size, func(i int) int64 { return s.counts(i, i) })
		}
	case Alltoallv:
		p.SCounts, p.SDispls = spread(p.Size, func(i int) int64 { return s.counts(rank, i) })
		p.RCounts, p.RDispls = spread(p.Size, func(i int) int64 { return s.counts(i, rank) })
	}
	return p
}

// run runs the plans of the story and compares the results with simple ones.
func (s *story) run() error {
	m := newMachine(s.seed, s.foldFunc())
	inputs := make([][]byte, s.base.Size)
	for rank := range s.base.Size {
		p, err := NewPlan(s.params(rank))
		if err != nil {
			return err
		}
		inPlace := p.p.InPlace && (!s.base.Kind.Rooted() || rank == s.base.Root)
		state := m.add(p, inPlace)
		inputs[rank] = s.input(rank, p)
		s.fill(state, rank, inputs[rank])
	}
	if err := m.run(); err != nil {
		return err
	}
	return s.verify(m, inputs)
}

// input returns the contribution of a rank: the whole In of an operation that is not in place.
func (s *story) input(rank int, p *Plan) []byte {
	n := p.inExtent
	switch p.p.Kind {
	case Bcast:
		n = p.outExtent
	case Gather, Gatherv, Allgather, Allgatherv:
		n = p.bytes
		if p.out.elem > 0 || p.out.total > 0 {
			n = p.out.len(rank)
		}
	case Scatter, Scatterv:
		n = p.in.extent(p.p.Size)
		if rank != p.p.Root {
			n = 0
		}
	}
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(s.seed), byte(s.seed >> 8), byte(rank)}).Read(data) // never fails
	if s.base.Kind.reducing() && s.ordered {
		for i := 0; i+8 <= len(data); i += 8 {
			data[i] |= 1 // with odd factors a composition depends on all its operands
		}
	}
	return data
}

// fill copies the input to the positions that the rank's plan expects.
func (s *story) fill(state *rankState, rank int, input []byte) {
	p := state.plan
	switch kind := p.p.Kind; {
	case kind == Bcast:
		if rank == p.p.Root {
			copy(state.bufs[Out], input)
		}
	case state.aliased && (kind == Gather || kind == Gatherv || kind == Allgather || kind == Allgatherv):
		if len(input) > 0 {
			copy(state.bufs[Out][p.out.off(rank):], input)
		}
	default:
		copy(state.bufs[In], input)
	}
}

// affine composes maps x -> a*x+b over 32 bits: associative, not commutative.
func affine(left, right, to []byte) {
	for i := 0; i+8 <= len(to); i += 8 {
		a1, b1 := binary.LittleEndian.Uint32(left[i:]), binary.LittleEndian.Uint32(left[i+4:])
		a2, b2 := binary.LittleEndian.Uint32(right[i:]), binary.LittleEndian.Uint32(right[i+4:])
		binary.LittleEndian.PutUint32(to[i:], a1*a2)
		binary.LittleEndian.PutUint32(to[i+4:], a1*b2+b1)
	}
}

// combined sets to to left op right.
func (s *story) combined(left, right, to []byte) {
	if s.ordered {
		affine(left, right, to)
		return
	}
	for i := range to {
		to[i] = left[i] + right[i]
	}
}

func (s *story) foldFunc() foldFunc {
	return func(dst, src []byte, reversed bool) {
		if reversed {
			s.combined(bytes.Clone(dst), src, dst)
		} else {
			s.combined(src, bytes.Clone(dst), dst)
		}
	}
}

// verify compares every byte of every Out that the operation defines, and checks that In is
// unchanged.
func (s *story) verify(m *machine, inputs [][]byte) error {
	for rank, state := range m.ranks {
		want := s.want(state, rank, inputs, m)
		for off, data := range want {
			if len(data) == 0 {
				continue // an empty block may lie outside the buffer
			}
			got := state.bufs[Out][off : off+int64(len(data))]
			if !bytes.Equal(got, data) {
				return fmt.Errorf("rank %d: Out at %d is %x, want %x", rank, off, got, data)
			}
		}
		if s.base.Kind != Bcast && !state.aliased && !bytes.Equal(state.bufs[In], inputs[rank]) {
			return fmt.Errorf("rank %d: In was written", rank)
		}
	}
	return nil
}

// want returns the pieces of Out that are defined, by their offset.
func (s *story) want(state *rankState, rank int, inputs [][]byte, m *machine) map[int64][]byte {
	p := state.plan
	want := map[int64][]byte{}
	switch p.p.Kind {
	case Bcast:
		want[0] = inputs[p.p.Root]
	case Reduce:
		if rank == p.p.Root {
			want[0] = s.reduced(inputs)
		}
	case Allreduce:
		want[0] = s.reduced(inputs)
	case Scan:
		want[0] = s.reduced(inputs[:rank+1])
	case ReduceScatter:
		want[0] = s.reduced(inputs)[p.in.off(rank):][:p.in.len(rank)]
	case Gather, Gatherv, Allgather, Allgatherv:
		if rank == p.p.Root || !p.p.Kind.Rooted() {
			for i := range s.base.Size {
				want[p.out.off(i)] = inputs[i]
			}
		}
	case Scatter, Scatterv:
		at := &m.ranks[p.p.Root].plan.in
		if !state.aliased {
			want[0] = block(inputs[p.p.Root], at, rank)
		}
	case Alltoall, Alltoallv:
		for i := range s.base.Size {
			at := &m.ranks[i].plan.in
			want[p.out.off(i)] = block(inputs[i], at, rank)
		}
	}
	return want
}

// block returns block i of a buffer.
func block(buf []byte, part *partition, i int) []byte {
	if part.len(i) == 0 {
		return nil // it may lie outside the buffer
	}
	return buf[part.off(i):][:part.len(i)]
}

// reduced combines operands from left to right.
func (s *story) reduced(inputs [][]byte) []byte {
	acc := bytes.Clone(inputs[0])
	for _, x := range inputs[1:] {
		s.combined(bytes.Clone(acc), x, acc)
	}
	return acc
}

func (s *story) play(t *testing.T) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatalf("%v: %v", s, err)
	}
}
