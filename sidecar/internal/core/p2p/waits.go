package p2p

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Near is a message that has arrived and fits no receive.
type Near struct {
	Source, Context uint32
	Tag, Bytes      uint64
}

// Own reports whether a request is a receive by which a libfabric provider serves other ranks: from
// any rank, in a context of its own (LAYOUT §8.2).
func (rx *receiver) Own(q ranks.Request) bool {
	if q.Kind != ranks.RequestRecv {
		return false
	}
	r := rx.recvs.Get(q.ID)
	return r != nil && !r.matched && r.pattern.Source == shm.AnySource && r.pattern.Context >= shm.ProviderContext && r.pattern.Context%shm.ProviderSpaces != 0
}

// Moving reports whether the message of a request is under way.
func (rm *Room) Moving(q ranks.Request) bool {
	switch q.Kind {
	case ranks.RequestRecv:
		r := rm.recvs.Get(q.ID)
		return r != nil && r.matched
	case ranks.RequestSend:
		st := rm.sends.Get(q.ID)
		return st != nil && st.move.Asked()
	}
	return false
}

// WaitOf describes a request.
func (rm *Room) WaitOf(q ranks.Request) (w ranks.Wait, ok bool) {
	switch q.Kind {
	case ranks.RequestRecv:
		r := rm.recvs.Get(q.ID)
		if r == nil {
			return w, false
		}
		w = ranks.Wait{Kind: ranks.WaitRecv, Peer: r.pattern.Source, Context: r.pattern.Context, Tag: r.pattern.Tag, Ignore: r.pattern.Ignore, Bytes: r.capacity, Moving: r.matched}
		if r.matched {
			w.Peer, w.Tag, w.Ignore, w.Bytes = r.source, r.tag, 0, r.length
		}
	case ranks.RequestSend:
		st := rm.sends.Get(q.ID)
		if st == nil {
			return w, false
		}
		w = ranks.Wait{Kind: ranks.WaitSend, Peer: st.dst, Context: st.context, Tag: st.tag, Bytes: st.total, Moving: st.move.Asked()}
	case ranks.RequestProbe:
		p := rm.probes.Get(q.ID)
		if p == nil {
			return w, false
		}
		w = ranks.Wait{Kind: ranks.WaitProbe, Peer: p.source, Context: p.pattern.Context, Tag: p.pattern.Tag, Ignore: p.pattern.Ignore}
	default:
		return w, false
	}
	return w, true
}

// NearOf returns the oldest messages, at most n, that no receive of a rank takes, and how many
// there are.
func (rx *receiver) NearOf(rank uint32, n int) (near []Near, all int) {
	q := rx.endpoints[rank].queue
	q.EachParked(func(h uint32) bool {
		m, _ := rx.parked.At(h)
		near = append(near, Near{m.head.Src, m.head.Context, m.head.Tag, m.length})
		return len(near) < n
	})
	return near, q.Parked()
}
