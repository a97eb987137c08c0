package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// probe waits for a message for which no receive is posted.
type probe struct {
	owner    owner
	endpoint *endpoint
	source   uint32
	pattern  match.Pattern
	posted   match.Ref
	claim    bool // matched probe: takes the message out of matching
}

func (rx *receiver) submitProbe(s *session, d *shm.Descriptor) error {
	e := s.endpoint
	pat := match.Pattern{Context: d.Context, Source: d.Peer, Tag: d.Tag, Ignore: d.Aux()}
	if d.Peer != shm.AnySource {
		if err := rx.job.Check(d.Peer); err != nil {
			return err
		}
	}
	claim := d.Op == shm.OpMprobe
	// The claim precedes Take: if the number were in use, the message would be lost.
	if err := s.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
		return err
	}
	find := e.queue.Peek
	if claim {
		find = e.queue.Take
	}
	h, ok := find(pat)
	rx.charge(e.queue)
	switch {
	case ok:
		m, id := rx.parked.At(h)
		rx.endProbe(s.ID(), d.Req, m, id, claim)
		return nil
	case d.Flags&shm.FlagNow != 0:
		rx.ranks.Finish(s.ID(), d.Req, shm.StatusNoMessage)
		return nil
	case e.probes.Full(pat):
		rx.ranks.Finish(s.ID(), d.Req, shm.StatusUnsupported)
		return nil
	}
	p, id := rx.probes.Alloc()
	*p = probe{owner: owner{session: s.ID(), req: d.Req}, endpoint: e, source: d.Peer, pattern: pat, claim: claim}
	rx.setState(s, p.owner, ranks.RequestProbe, id)
	if d.Peer != shm.AnySource {
		from := rx.peerOf(d.Peer)
		if rx.job.HasLeft(d.Peer) || from.State() == channel.Dead {
			rx.probes.Release(id)
			rx.ranks.Finish(s.ID(), d.Req, rx.job.LostRank(d.Peer))
			return nil
		}
		rx.channel.Reach(from.Peer)
	}
	p.posted = e.probes.Post(pat, uint32(id))
	return nil
}

func (rx *receiver) endProbe(s ranks.SessionID, req uint32, m *message, id uint64, claim bool) {
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Peer: m.head.Src, Tag: m.head.Tag}
	handle := uint64(0)
	if claim {
		handle = id
		m.claimed, m.claimIndex = true, len(m.endpoint.claimed)
		m.endpoint.claimed = append(m.endpoint.claimed, id)
	}
	d.SetBody(0, m.length, handle, 0)
	m.data.Tell(&d)
	rx.ranks.Complete(s, &d)
}

// offerToProbes ends the waiting probes that match a message which has just arrived. It reports
// whether a matched probe has claimed the message.
func (rx *receiver) offerToProbes(e *endpoint, m *message, id uint64) bool {
	if m.coll {
		return false
	}
	for {
		i, ok := e.probes.Arrive(envelope(&m.head))
		if !ok {
			return false
		}
		p, pid := rx.probes.At(i)
		o, claim := p.owner, p.claim
		rx.probes.Release(pid)
		rx.endProbe(o.session, o.req, m, id, claim)
		if claim {
			return true
		}
	}
}

// claimedBy returns the message that the handle of a matched probe identifies.
func (rx *receiver) claimedBy(s *session, handle uint64) (*message, error) {
	m := rx.parked.Get(handle)
	if m == nil || !m.claimed || m.endpoint != s.endpoint || m.waiter != 0 {
		return nil, fmt.Errorf("no message has the handle %#x", handle)
	}
	return m, nil
}

func (rx *receiver) submitMrecv(s *session, d *shm.Descriptor) error {
	handle := d.Aux2()
	m, err := rx.claimedBy(s, handle)
	if err != nil {
		return err
	}
	r, id := rx.recvs.Alloc()
	err = rx.fillRecv(s, r, d)
	if err == nil {
		err = s.claimRecv(d.Req, r, id)
	}
	if err != nil {
		rx.recvs.Release(id)
		return err
	}
	rx.dropClaim(m)
	rx.matchParked(r, id, m, handle)
	return nil
}

func (rx *receiver) submitDrop(s *session, d *shm.Descriptor) error {
	m, err := rx.claimedBy(s, d.Aux())
	if err != nil {
		return err
	}
	rx.refuseParked(d.Aux(), m, shm.StatusOK)
	return nil
}

// dropClaim removes a message from the list of those that are claimed and not received.
func (rx *receiver) dropClaim(m *message) {
	if !m.claimed {
		return
	}
	m.claimed = false
	list := m.endpoint.claimed
	last := list[len(list)-1]
	list[m.claimIndex] = last
	rx.parked.Get(last).claimIndex = m.claimIndex
	m.endpoint.claimed = list[:len(list)-1]
}
