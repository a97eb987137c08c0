package collective

import (
	"fmt"
	"strconv"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
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
	switch kind := coll.Kind(b.Kind); kind {
	case coll.Barrier: // the window that is fenced
		root, rest = b.Root, uint64(b.Root)
	case coll.Gatherv, coll.Scatterv, coll.Alltoallv:
	default:
		counts := vectors[0] // the same on all ranks; displacements are not
		switch {
		case b.Vectors == 0:
			rest = b.Count * b.Elem
		case kind == coll.ReduceScatter && even(counts): // as without counts
			rest = uint64(counts[0]) * b.Elem
		default:
			for _, n := range counts {
				rest = (rest ^ uint64(n)*b.Elem) * agreePrime
			}
		}
	}
	if coll.Kind(b.Kind).Rooted() {
		root = b.Root
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

// even reports that all blocks have one size.
func even(counts []int64) bool {
	for _, n := range counts {
		if n != counts[0] {
			return false
		}
	}
	return len(counts) > 0
}

func (s signature) kind() coll.Kind { return coll.Kind(s >> 28) }
func (s signature) root() uint32    { return uint32(s) >> 16 & (1<<rootBits - 1) }

// own is a collective as this rank is in it: as its messages name it, which is the
// signature, that counts, and its particulars, to be told; and exactly what these cut.
type own struct {
	ranks.Immediate
	announced   uint32 // of the particulars, what fits the announcement of a message
	size        uint64 // bytes that ranks agree on
	root        uint32 // or the window that a barrier fences
	vectors     bool
	commutative bool
}

func identity(b *shm.CollBlock, vectors *[collVectors][]int64) own {
	if !checksAgreement {
		return own{}
	}
	size := agreedSize(b, vectors)
	x := particularsOf(b, size)
	return own{
		Immediate: ranks.ImmediateOf(uint32(signatureOf(b, vectors)), uint32(x)), announced: x.announced(),
		size: size, root: b.Root, vectors: b.Vectors > 0, commutative: b.Flags&shm.CollCommutative != 0,
	}
}

// compare notes that a message of src belongs to another collective than ours,
// which has its number. The job ends with it at the next step: who has just been
// told of the message is in the midst of it.
func (r *Room) compare(b *member, m *comm, ours *own, src uint32, its ranks.Immediate) {
	if !its.There() || signature(its.Word()) == signature(ours.Word()) {
		return
	}
	r.disagree(b, src, disagreement(m, ours, its))
}

func (r *Room) disagree(b *member, with uint32, text string) {
	if r.dispute == nil && !r.job.Failed() {
		r.dispute = &Dispute{Rank: b.session.Rank(), Reason: podlife.TextDisagrees + fmt.Sprintf("rank %d", with) + text}
	}
}

// disagreement says what two ranks disagree on. Who is not of this sidecar may get
// its beginning only (abortText).
func disagreement(m *comm, ours *own, theirs ranks.Immediate) string {
	text := difference(m, ours, theirs)
	if m.context != 0 {
		text += fmt.Sprintf(" (communicator %d)", m.context)
	}
	return text
}

func difference(m *comm, ours *own, theirs ranks.Immediate) string {
	a, b := signature(ours.Word()), signature(theirs.Word())
	x, y := particularsIn(ours.Immediate), particularsIn(theirs)
	switch kind := a.kind(); {
	case kind != b.kind() || kind == coll.Barrier:
		return fmt.Sprintf(": %s here, %s there", ours.name(), b.name(y, cutWindow(ours, b)))
	case a.root() != b.root():
		return fmt.Sprintf(" on %v: root %s here, root %s there", kind, m.rootName(ours.root), m.theirRoot(b.root()))
	case x.known() && y.known():
		return fmt.Sprintf(" on %v: ", kind) + ours.against(kind, y)
	case reduces(uint8(kind)):
		return fmt.Sprintf(" on %v: size, type or op", kind)
	}
	return fmt.Sprintf(" on %v: size", a.kind())
}

// rootName is a root as its ranks call it, and as everybody does.
func (m *comm) rootName(root uint32) string {
	if m.ranks == nil || int(root) >= m.size {
		return strconv.Itoa(int(root))
	}
	return fmt.Sprintf("%d (world rank %d)", root, m.rank(int32(root)))
}

// theirRoot is a root of which a message has only as much as fits.
func (m *comm) theirRoot(root uint32) string {
	if m.size > 1<<rootBits {
		return fmt.Sprintf("%d modulo %d", root, 1<<rootBits)
	}
	return m.rootName(root)
}

// cutWindow reports that the window which the other side fences may have a number
// that does not fit its message.
func cutWindow(ours *own, theirs signature) bool {
	a := signature(ours.Word())
	return a.kind() == coll.Barrier && theirs.kind() == coll.Barrier && (ours.root>>rootBits != 0 || a.root() == theirs.root())
}

// name is a collective as its ranks call it.
func (s signature) name(x particulars, cut bool) string {
	switch {
	case s.kind() != coll.Barrier:
		return nameOf(s.kind(), x.known() && x.size() > 0, x.about(s.kind()))
	case x.known() && x.width() == 0:
		return fenceOf(uint32(x.size())<<rootBits | s.root())
	case cut && s.root() == 0:
		return fmt.Sprintf("a barrier or the fence of a window whose number is 0 modulo %d", 1<<rootBits)
	case cut:
		return fmt.Sprintf("fence of a window whose number is %d modulo %d", s.root(), 1<<rootBits)
	}
	return fenceOf(s.root())
}

// fenceOf is a barrier, of a window if that is not 0.
func fenceOf(window uint32) string {
	if window == 0 {
		return coll.Barrier.String()
	}
	return fmt.Sprintf("fence of window %d", window)
}

func (o *own) name() string {
	kind := signature(o.Word()).kind()
	if kind == coll.Barrier {
		return fenceOf(o.root)
	}
	return nameOf(kind, o.size > 0, memory.Text(o.size)+particularsIn(o.Immediate).how(kind))
}

func nameOf(kind coll.Kind, sized bool, of string) string {
	if sized {
		return kind.String() + " of " + of
	}
	return kind.String()
}

// Parked looks whether a message of a collective that no receive of a rank waits for is
// of one that the rank is in, or of one that has ended: then it is never taken.
func (r *Room) Parked(s ranks.SessionID, context uint32, tag uint64, src uint32, length uint64, its ranks.Immediate) {
	b := r.members[s]
	m := b.comms[context]
	if m == nil || !m.identity.There() {
		return
	}
	seq := uint32(tag >> 32)
	if seq == m.seq {
		r.compare(b, m, &m.identity, src, its)
	}
	if over := int32(m.base-seq) > 0 || m.active == 0 && int32(m.seq-seq) >= 0; over && !m.broken {
		r.surplus(b, src, length, its)
	}
}

// Matched looks whether a message that a receive of a collective has got is of that
// collective, and of the size that it expects.
func (r *Room) Matched(id uint64, src uint32, its ranks.Immediate, sent, expected uint64) {
	if st := r.calls.Get(id); st != nil {
		r.compare(st.member, st.comm, &st.identity, src, its)
		r.compareSize(st, src, sent, expected)
	}
}

// compareEarly looks at the oldest message that came for a collective before its
// rank began with it.
func (r *Room) compareEarly(b *member, m *comm) {
	if early, ok := r.messages.Parked(b.session.ID(), messagesOf(m, m.seq)); ok {
		r.compare(b, m, &m.identity, early.Source, early.Data)
	}
}

// messagesOf are all messages of a collective.
func messagesOf(m *comm, seq uint32) match.Pattern {
	return match.Pattern{Context: m.context, Source: match.AnySource, Tag: uint64(seq) << 32, Ignore: 1<<32 - 1}
}
