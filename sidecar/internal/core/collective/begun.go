package collective

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Ranks that disagree about a collective may never exchange a message that says so:
// each of two roots of a gather only receives. So a rank's last collectives are kept,
// also when it has left, for who holds the ranks of a job against each other (package
// why). A rank that only sends in the collectives behind the wrong one may be thousands
// further on: those of one kind in a row are kept as one.

// Bounds of what is kept of a rank: so many rows of collectives of one kind. One goes on
// while it is among the last few: communicators take turns.
const (
	begunKept = 16
	begunNear = 4
	forTold   = 8 // ranks that a collective waits for
)

// begun are the collectives that a rank has begun last.
type begun struct {
	last  [begunKept]begunRow
	total uint64 // rows, over all time
}

// begunRow are collectives of one kind that a rank has begun one after the other on one
// communicator.
type begunRow struct {
	begunColl
	last, count uint32 // the number of the last one, and how many they are
}

type begunColl struct {
	comm, lead  uint32
	root        uint32 // a world rank; AnySource: none
	window      uint32
	kind        uint8
	commutative bool
}

func (b *begun) add(st *call) {
	x := begunOf(st)
	for i := uint64(1); i <= min(b.total, begunNear); i++ {
		row := &b.last[(b.total-i)%begunKept]
		if row.last+1 == st.seq && row.begunColl == x && row.count+1 != 0 {
			row.last++
			row.count++
			return
		}
	}
	b.last[b.total%begunKept] = begunRow{x, st.seq, 1}
	b.total++
}

// begunOf is what is kept of one. Preconditions: it has a plan.
func begunOf(st *call) begunColl {
	x := begunColl{
		comm: st.comm.context, lead: st.comm.rank(0), root: shm.AnySource, window: st.window,
		kind: uint8(st.kind), commutative: st.identity.commutative,
	}
	if root := st.plan.Root(); root >= 0 {
		x.root = st.comm.rank(int32(root))
	}
	return x
}

// list tells of them, the last row first.
func (b *begun) list() (list []ranks.Wait) {
	for i := range min(b.total, begunKept) {
		x := &b.last[(b.total-1-i)%begunKept]
		w := x.wait()
		w.Number, w.Count = x.last, x.count
		list = append(list, w)
	}
	return list
}

func (x *begunColl) wait() ranks.Wait {
	return ranks.Wait{
		Kind: ranks.WaitColl, Op: x.kind, Context: x.comm, Lead: x.lead, Root: x.root, Window: x.window,
		Reduces: checksAgreement && reduces(x.kind), Commutative: x.commutative,
	}
}

// about is a collective as its ranks agree on it. One whose vectors are being taken
// has no number yet.
func (st *call) about() ranks.Wait {
	if st.plan == nil {
		return ranks.Wait{Kind: ranks.WaitColl, Op: uint8(st.kind), Context: st.comm.context, Lead: st.comm.rank(0), Root: shm.AnySource, Group: st.comm.size}
	}
	x := begunOf(st)
	w := x.wait()
	w.Number, w.Group = st.seq, st.comm.size
	return w
}

// WaitOf tells of a collective that has not ended, and of the ranks that it waits for in
// its round.
func (r *Room) WaitOf(id uint64) (w ranks.Wait, ok bool) {
	st := r.calls.Get(id)
	if st == nil {
		return w, false
	}
	w = st.about()
	w.Peer, w.Bytes, w.Round = shm.AnySource, st.bytes, st.round+1
	if st.plan == nil { // its vectors are being taken
		return w, true
	}
	w.Rounds = st.plan.Rounds()
	for _, x := range st.open {
		if peer, open := r.messages.Peer(x); open && len(w.For) < forTold && !slices.Contains(w.For, peer) {
			w.For = append(w.For, peer)
		}
	}
	return w, true
}
