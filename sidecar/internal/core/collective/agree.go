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

// Ranks that call different collectives, or one collective with different roots, sizes,
// types or operations, would hang or compute wrong results. Therefore each message of a
// collective carries a signature of 32 bits, and its receiver compares it with its own.

// signature encodes the values on which the ranks of a collective must agree: the kind in 4
// bits, the root in 12, and a hash of the rest in 16 (PROTOCOL.md §5.1).
type signature uint32

const (
	rootBits   = 12
	agreePrime = 0x9e3779b97f4a7c15
)

// signatureOf returns the signature of a collective. Sizes that may differ between ranks
// are not in it.
func signatureOf(b *shm.CollBlock, vectors *[collVectors][]int64) signature {
	if !checksAgreement {
		return 0
	}
	root, rest := uint32(0), uint64(0)
	switch kind := coll.Kind(b.Kind); kind {
	case coll.Barrier: // the root is the fenced window
		root, rest = b.Root, uint64(b.Root)
	case coll.Gatherv, coll.Scatterv, coll.Alltoallv:
	default:
		counts := vectors[0] // equal on all ranks; displacements may differ
		switch {
		case b.Vectors == 0:
			rest = b.Count * b.Elem
		case kind == coll.ReduceScatter && even(counts): // equal to a collective without counts
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
		if b.Flags&shm.CollCommutative != 0 { // the order of messages depends on it
			rest = ^rest
		}
	}
	hash := uint32(rest * agreePrime >> 48)
	return signature(uint32(b.Kind)<<28 | root&(1<<rootBits-1)<<16 | hash)
}

// even reports whether all counts are equal.
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

// localSignature has the signature and detail of a collective of a hosted rank as its
// messages carry them, and in full the values that a message carries in part.
type localSignature struct {
	ranks.Immediate
	announced   uint32 // the part of the detail that fits an announcement
	size        uint64 // in bytes, if ranks must agree on it
	root        uint32 // or the window that a barrier fences
	vectors     bool
	commutative bool
}

// identity returns the localSignature of a collective.
func identity(b *shm.CollBlock, vectors *[collVectors][]int64) localSignature {
	if !checksAgreement {
		return localSignature{}
	}
	size := agreedSize(b, vectors)
	x := detailOf(b, size)
	return localSignature{
		Immediate: ranks.ImmediateOf(uint32(signatureOf(b, vectors)), uint32(x)), announced: x.announced(),
		size: size, root: b.Root, vectors: b.Vectors > 0, commutative: b.Flags&shm.CollCommutative != 0,
	}
}

// compare records a dispute if a message of src carries another signature than ours,
// although it has the number of our collective. The job ends in the next step, and not
// here, because the caller is still processing the message.
func (r *Room) compare(b *member, m *comm, ours *localSignature, src uint32, its ranks.Immediate) {
	if !its.There() || signature(its.Word()) == signature(ours.Word()) {
		return
	}
	r.disagree(b, src, disagreement(m, ours, its))
}

// disagree records the first dispute of a job that has not failed.
func (r *Room) disagree(b *member, with uint32, text string) {
	if r.dispute == nil && !r.job.Failed() {
		r.dispute = &Dispute{Rank: b.session.Rank(), Reason: podlife.TextDisagrees + fmt.Sprintf("rank %d", with) + text}
	}
}

// disagreement describes the difference between two ranks' collectives. Other sidecars may
// get only the beginning of the text (core.abortText), which therefore has the kinds.
func disagreement(m *comm, ours *localSignature, theirs ranks.Immediate) string {
	text := difference(m, ours, theirs)
	if m.context != 0 {
		text += fmt.Sprintf(" (communicator %d)", m.context)
	}
	return text
}

// difference returns the text of disagreement without the communicator.
func difference(m *comm, ours *localSignature, theirs ranks.Immediate) string {
	a, b := signature(ours.Word()), signature(theirs.Word())
	x, y := detailIn(ours.Immediate), detailIn(theirs)
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

// rootName returns a root by its number in the communicator, and by its world rank if
// that differs.
func (m *comm) rootName(root uint32) string {
	if m.ranks == nil || int(root) >= m.size {
		return strconv.Itoa(int(root))
	}
	return fmt.Sprintf("%d (world rank %d)", root, m.rank(int32(root)))
}

// theirRoot returns a root of which the message has the low bits.
func (m *comm) theirRoot(root uint32) string {
	if m.size > 1<<rootBits {
		return fmt.Sprintf("%d modulo %d", root, 1<<rootBits)
	}
	return m.rootName(root)
}

// cutWindow reports whether the number of the other rank's window may have been too large
// for its message.
func cutWindow(ours *localSignature, theirs signature) bool {
	a := signature(ours.Word())
	return a.kind() == coll.Barrier && theirs.kind() == coll.Barrier && (ours.root>>rootBits != 0 || a.root() == theirs.root())
}

// name returns the text for a collective of which a message has the signature and detail.
func (s signature) name(x detail, cut bool) string {
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

// fenceOf returns the text for a barrier, or for the fence of a window that is not 0.
func fenceOf(window uint32) string {
	if window == 0 {
		return coll.Barrier.String()
	}
	return fmt.Sprintf("fence of window %d", window)
}

// name returns the text for a collective of a hosted rank.
func (o *localSignature) name() string {
	kind := signature(o.Word()).kind()
	if kind == coll.Barrier {
		return fenceOf(o.root)
	}
	return nameOf(kind, o.size > 0, memory.Text(o.size)+detailIn(o.Immediate).how(kind))
}

func nameOf(kind coll.Kind, sized bool, of string) string {
	if sized {
		return kind.String() + " of " + of
	}
	return kind.String()
}

// Parked checks an unexpected message of a collective. If the rank is in the collective
// with that number, the signatures are compared. If that collective has ended, no receive
// will match the message: a rank has sent more than expected.
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
		r.noteSurplus(b, src, length, its)
	}
}

// Matched checks signature and size of a message that a receive of a collective has
// matched.
func (r *Room) Matched(id uint64, src uint32, its ranks.Immediate, sent, expected uint64) {
	if st := r.calls.Get(id); st != nil {
		r.compare(st.member, st.comm, &st.identity, src, its)
		r.compareSize(st, src, sent, expected)
	}
}

// compareEarly checks the oldest message that arrived for a collective before its rank
// began it.
func (r *Room) compareEarly(b *member, m *comm) {
	if early, ok := r.messages.Parked(b.session.ID(), messagesOf(m, m.seq)); ok {
		r.compare(b, m, &m.identity, early.Source, early.Data)
	}
}

// messagesOf returns the pattern of all messages of a collective.
func messagesOf(m *comm, seq uint32) match.Pattern {
	return match.Pattern{Context: m.context, Source: match.AnySource, Tag: uint64(seq) << 32, Ignore: 1<<32 - 1}
}
