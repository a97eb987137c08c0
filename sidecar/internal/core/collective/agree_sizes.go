package collective

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// A message of a collective is as long as its receiver expects: where ranks give
// counts of their own (gatherv, scatterv, alltoallv) nothing else could tell that they
// differ, and a shorter message would leave the rest of a block as it was.

// compareSize notes that a message that st has got is not of the size it expects.
func (r *Room) compareSize(st *call, src uint32, sent, expected uint64) {
	if sent != expected && checksAgreement {
		r.disagree(st.member, src, otherSize(st.kind, src, st.member.session.Rank(), sent, expected))
	}
}

// surplus notes a message for a block of no size: nothing ever takes it.
func (r *Room) surplus(b *member, src uint32, sent uint64, its ranks.Immediate) {
	if its.There() {
		r.disagree(b, src, otherSize(signature(its.Word()).kind(), src, b.session.Rank(), sent, 0))
	}
}

// leftOver looks for such a message of a collective that is about to end well.
func (r *Room) leftOver(st *call) bool {
	if !checksAgreement {
		return false
	}
	m, ok := r.messages.Parked(st.member.session.ID(), messagesOf(st.comm, st.seq))
	if ok {
		r.surplus(st.member, m.Source, m.Length, m.Data)
	}
	return ok && r.dispute != nil
}

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

// against tells how a collective's size and operation here differ from theirs, of
// which a message has the size rounded: ours is rounded likewise before it is said
// that they are equal, or not.
func (o *own) against(kind coll.Kind, theirs particulars) string {
	here, there := particularsIn(o.Immediate).how(kind), theirs.how(kind)
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

// alike tells of two collectives that differ in nothing that a message has room for.
func (o *own) alike(kind coll.Kind, theirs particulars) string {
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
