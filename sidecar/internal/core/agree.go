package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// Ranks that call different collectives, or the same with another root, size, type
// or operation, would wait for ever, or combine what does not belong together. So
// each message of a collective says in 32 bits, beside its tag, what it is of.

// signature is what the ranks of a collective must agree on: the kind in 4 bits,
// the root in 12, and a hash of the rest in 16.
type signature uint32

const (
	rootBits   = 12
	agreePrime = 0x9e3779b97f4a7c15
)

// signatureOf is that of a block with its vectors (P§5.1). Sizes that may differ from
// rank to rank are left out.
func signatureOf(b *shm.CollBlock, vectors *[collVectors][]int64) signature {
	if !checksAgreement {
		return 0
	}
	root, rest := uint32(0), uint64(0)
	if coll.Kind(b.Kind).Rooted() {
		root = b.Root
	}
	switch coll.Kind(b.Kind) {
	case coll.Barrier, coll.Gatherv, coll.Scatterv, coll.Alltoallv:
	default:
		if b.Vectors == 0 {
			rest = b.Count * b.Elem
		}
		for _, n := range vectors[0] { // counts, the same on all ranks; displacements are not
			rest = (rest ^ uint64(n)*b.Elem) * agreePrime
		}
	}
	if reduces(b.Kind) {
		rest = rest<<16 | uint64(b.Type)<<8 | uint64(b.Op)
		if b.Flags&shm.CollCommutative != 0 { // it decides about the order of messages
			rest = ^rest
		}
	}
	hash := uint32(rest * agreePrime >> 48)
	return signature(uint32(b.Kind)<<28 | root&(1<<rootBits-1)<<16 | hash)
}

func (s signature) kind() coll.Kind { return coll.Kind(s >> 28) }
func (s signature) root() uint32    { return uint32(s) >> 16 & (1<<rootBits - 1) }
func (s signature) data() immediate { return immediateThere | immediate(s) }

// compare notes that a message of src belongs to another collective than ours,
// which has its number. The job ends with it at the next step: who has just been
// told of the message is in the midst of it.
func (c *Core) compare(e *endpoint, ours signature, src uint32, its immediate) {
	theirs := signature(its.word())
	if !its.there() || theirs == ours || c.dispute != nil || c.fail != nil {
		return
	}
	c.dispute = &Failure{Rank: e.rank, Code: 1, Reason: podlife.TextDisagrees + disagreement(ours, theirs, src)}
}

// disagreement says what two ranks disagree on, in the few bytes that travel to
// other sidecars (abortText).
func disagreement(ours, theirs signature, src uint32) string {
	on := fmt.Sprintf("rank %d on %v: ", src, ours.kind())
	switch {
	case ours.kind() != theirs.kind():
		return fmt.Sprintf("rank %d: %v here, %v there", src, ours.kind(), theirs.kind())
	case ours.root() != theirs.root():
		return on + fmt.Sprintf("root %d, there %d", ours.root(), theirs.root())
	case reduces(uint8(ours.kind())):
		return on + "size, type or op"
	}
	return on + "size"
}

// compareParked looks whether a message of a collective that nobody waits for is of
// one that its rank is in.
func (c *Core) compareParked(e *endpoint, context uint32, tag uint64, src uint32, its immediate) {
	if e.session == nil {
		return
	}
	if m := e.session.comms[context]; m != nil && uint64(m.seq) == tag>>32 && m.signature != 0 {
		c.compare(e, m.signature, src, its)
	}
}

// compareEarly looks at the oldest message that came for a collective before its
// rank began with it.
func (c *Core) compareEarly(e *endpoint, m *comm) {
	if e.colls.Parked() == 0 {
		return
	}
	of := match.Pattern{Context: m.context, Source: match.AnySource, Tag: uint64(m.seq) << 32, Ignore: 1<<32 - 1}
	if h, ok := e.colls.Peek(of); ok {
		early, _ := c.parked.at(h)
		c.compare(e, m.signature, early.head.Src, early.data)
	}
}

// settle ends the job for what was noted.
func (c *Core) settle() {
	if f := c.dispute; f != nil {
		c.dispute = nil
		c.failJob(f)
	}
}
