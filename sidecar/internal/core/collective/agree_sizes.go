package collective

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// In gatherv, scatterv and alltoallv each rank passes its own counts, which no signature
// covers. If they disagree, a message is longer or shorter than its receive: the size of
// each message is compared too.

// compareSize records a dispute if a message has another size than its receive.
func (r *Room) compareSize(st *call, src uint32, sent, expected uint64) {
	if sent != expected && checksAgreement {
		r.disagree(st.member, src, otherSize(st.kind, src, st.member.session.Rank(), sent, expected))
	}
}

// noteSurplus records a dispute for a message whose receiver expects nothing of its sender.
func (r *Room) noteSurplus(b *member, src uint32, sent uint64, its ranks.Immediate) {
	if its.There() {
		r.disagree(b, src, otherSize(signature(its.Word()).kind(), src, b.session.Rank(), sent, 0))
	}
}

// hasSurplus reports whether such a message is parked for a collective that is about to
// complete.
func (r *Room) hasSurplus(st *call) bool {
	if !checksAgreement {
		return false
	}
	m, ok := r.messages.Parked(st.member.session.ID(), messagesOf(st.comm, st.seq))
	if ok {
		r.noteSurplus(st.member, m.Source, m.Length, m.Data)
	}
	return ok && r.dispute != nil
}

// otherSize returns the text for a message of another size than its receive.
func otherSize(kind coll.Kind, src, dst uint32, sent, expected uint64) string {
	a, b := memory.Text(sent), memory.Text(expected)
	if a == b {
		a, b = fmt.Sprintf("%d bytes", sent), fmt.Sprintf("%d bytes", expected)
	}
	if expected == 0 {
		b = "nothing"
	}
	return fmt.Sprintf(": rank %d sent %s to rank %d, which expects %s: %v's counts disagree", src, a, dst, b, kind)
}

// against compares size and operation of a collective with those of another rank. A message
// has the size rounded down: ours is rounded likewise before they are called equal.
func (o *localSignature) against(kind coll.Kind, theirs detail) string {
	here, there := detailIn(o.Immediate).how(kind), theirs.how(kind)
	width := theirs.width()
	same := width > 0 && withSize(o.size, width).size() == theirs.size() || o.size == theirs.size()
	if same && here == there {
		return o.alike(kind, theirs)
	}
	l, r, about := memory.Text(o.size), memory.Text(theirs.size()), ""
	if width > 0 {
		about = "about "
	}
	if l == r && (!same || width > 0) {
		l = fmt.Sprintf("%d bytes", o.size)
		if !same {
			r = fmt.Sprintf("%d bytes", theirs.size())
		}
	}
	return fmt.Sprintf("%s%s here, %s%s%s there", l, here, about, r, there)
}

// alike returns the text for collectives that differ in nothing that a message carries.
func (o *localSignature) alike(kind coll.Kind, theirs detail) string {
	how := theirs.how(kind)
	switch {
	case theirs.width() > 0:
		return fmt.Sprintf("%d bytes%s here, about %s%s there: another size, counts or order", o.size, how, memory.Text(theirs.size()), how)
	case !reduces(uint8(kind)) || o.vectors:
		return fmt.Sprintf("%s%s on both, and other counts or another order", memory.Text(o.size), how)
	case o.commutative:
		return fmt.Sprintf("%s%s on both, and the operation is commutative here, but not there", memory.Text(o.size), how)
	}
	return fmt.Sprintf("%s%s on both, and the operation is commutative there, but not here", memory.Text(o.size), how)
}
