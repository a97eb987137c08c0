package core

import "github.com/outrigger-hpc/outrigger/api/shm"

// Ranks that disagree about a collective may never exchange a message that says so:
// each of two roots of a gather only receives. So a rank's last collectives are kept,
// also when it has left, for who holds the ranks of a job against each other (package
// why). A rank that only sends in the collectives behind the wrong one may be further on
// than that, and then is not told.

// begunKept is how many of them.
const begunKept = 8

// begun are the collectives that a rank has begun last.
type begun struct {
	last  [begunKept]begunColl
	total uint64
}

type begunColl struct {
	comm, lead, seq uint32
	root            uint32 // a world rank; AnySource: none
	window          uint32
	kind            uint8
	commutative     bool
}

func (b *begun) add(st *collective) {
	b.last[b.total%begunKept] = begunOf(st)
	b.total++
}

// begunOf is what is kept of one. Preconditions: it has a plan.
func begunOf(st *collective) begunColl {
	x := begunColl{
		comm: st.comm.context, lead: st.comm.rank(0), seq: st.seq, root: shm.AnySource, window: st.window,
		kind: uint8(st.kind), commutative: st.identity.commutative,
	}
	if root := st.plan.Root(); root >= 0 {
		x.root = st.comm.rank(int32(root))
	}
	return x
}

// list tells of them, the last one first.
func (b *begun) list() (list []Wait) {
	for i := range min(b.total, begunKept) {
		x := &b.last[(b.total-1-i)%begunKept]
		list = append(list, x.wait())
	}
	return list
}

func (x *begunColl) wait() Wait {
	return Wait{
		Kind: WaitColl, Op: x.kind, Context: x.comm, Lead: x.lead, Number: x.seq, Root: x.root, Window: x.window,
		Reduces: checksAgreement && reduces(x.kind), Commutative: x.commutative,
	}
}

// about is a collective as its ranks agree on it. One whose vectors are being taken
// has no number yet.
func (st *collective) about() Wait {
	if st.plan == nil {
		return Wait{Kind: WaitColl, Op: uint8(st.kind), Context: st.comm.context, Lead: st.comm.rank(0), Root: shm.AnySource, Group: st.comm.size}
	}
	x := begunOf(st)
	w := x.wait()
	w.Group = st.comm.size
	return w
}
