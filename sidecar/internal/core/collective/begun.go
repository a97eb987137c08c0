package collective

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Ranks that disagree about a collective may never exchange a message that shows it: if a
// gather has two roots, both only receive. Therefore the last collectives of each rank are
// recorded, also after the rank has left, and package why compares the ranks of a job. A
// rank that only sends may be thousands of collectives ahead: consecutive collectives of
// one kind share a row.

const (
	// begunRows is the number of rows of a rank.
	begunRows = 16
	// begunOpenRows is how many of the last rows a collective may extend: programs use
	// several communicators in turn.
	begunOpenRows = 4
	// peersReported bounds the ranks that WaitOf lists.
	peersReported = 8
)

// begun has the last collectives of a rank.
type begun struct {
	last  [begunRows]begunRow
	total uint64 // rows, over all time
}

// begunRow stands for consecutive collectives of one kind on one communicator.
type begunRow struct {
	begunColl
	last, count uint32 // number of the latest collective of the row, and number of collectives in it
}

// begunColl has the values that the collectives of a row have in common.
type begunColl struct {
	comm, lead  uint32 // the communicator, and the first rank of its group
	root        uint32 // a world rank; AnySource: none
	window      uint32
	kind        uint8
	commutative bool
}

// add records a collective.
func (b *begun) add(st *call) {
	x := begunOf(st)
	for i := uint64(1); i <= min(b.total, begunOpenRows); i++ {
		row := &b.last[(b.total-i)%begunRows]
		if row.last+1 == st.seq && row.begunColl == x && row.count+1 != 0 {
			row.last++
			row.count++
			return
		}
	}
	b.last[b.total%begunRows] = begunRow{x, st.seq, 1}
	b.total++
}

// begunOf returns the record of a collective that has a plan.
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

// list returns the rows, the latest first.
func (b *begun) list() (list []ranks.Wait) {
	for i := range min(b.total, begunRows) {
		x := &b.last[(b.total-1-i)%begunRows]
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

// about describes a collective by the parameters that its ranks agree on. While its
// vectors are being copied it has no number.
func (st *call) about() ranks.Wait {
	if st.plan == nil {
		return ranks.Wait{Kind: ranks.WaitColl, Op: uint8(st.kind), Context: st.comm.context, Lead: st.comm.rank(0), Root: shm.AnySource, Group: st.comm.size}
	}
	x := begunOf(st)
	w := x.wait()
	w.Number, w.Group = st.seq, st.comm.size
	return w
}

// WaitOf describes a collective that has not ended, with the ranks that its round waits
// for; false: it has ended.
func (r *Room) WaitOf(id uint64) (w ranks.Wait, ok bool) {
	st := r.calls.Get(id)
	if st == nil {
		return w, false
	}
	w = st.about()
	w.Peer, w.Bytes, w.Round = shm.AnySource, st.bytes, st.round+1
	if st.plan == nil { // its vectors are being copied
		return w, true
	}
	w.Rounds = st.plan.Rounds()
	for _, x := range st.open {
		if peer, open := r.messages.Peer(x); open && len(w.For) < peersReported && !slices.Contains(w.For, peer) {
			w.For = append(w.For, peer)
		}
	}
	return w, true
}
