package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A message may want a reply (L§4.3): its sender has posted a receive for the reply, and the
// message names that receive. If the message is not received, there is no reply, and the
// receive would wait until its peer leaves. Therefore the message carries the number of the
// receive, which is sent back if the message is dropped; otherwise it costs nothing.

// replyTo returns the receive of a request number that takes the reply of a peer, or 0 if there is
// none that could end by the message. Each receive is named once, so that a sidecar that drops
// messages reports no more ends than there are receives.
func (rx *receiver) replyTo(s *session, req, peer uint32) uint64 {
	q := s.Request(req)
	if q.Kind != ranks.RequestRecv {
		return 0
	}
	r := rx.recvs.Get(q.ID)
	if r == nil || r.matched || r.replies || r.pattern.Source != peer {
		return 0
	}
	r.replies = true
	return q.ID
}

// onNoReply handles the news that a message which wanted a reply was dropped.
func (rx *receiver) onNoReply(p *peer, h *wire.Header) error {
	r := rx.recvs.Get(h.A)
	if r == nil {
		return rx.recvs.Ended(h.A, "no reply for")
	}
	if !r.replies || rx.peerOf(r.pattern.Source) != p {
		return fmt.Errorf("%w: no reply for a receive that waits for no reply of this peer", link.ErrProtocol)
	}
	rx.noReply(h.A, shm.Status(h.B))
	return nil
}

// noReply ends a receive whose message does not come. A receive that has matched a message keeps
// it.
func (rx *receiver) noReply(id uint64, status shm.Status) {
	r := rx.recvs.Get(id)
	switch {
	case r == nil || r.matched:
	case r.offered:
		r.refused = true
		rx.withdrawOffer(r, id)
	case r.endpoint.space(r.coll).Cancel(r.posted):
		rx.endRecv(id, r, status)
	}
}

// withdrawal returns the status of a receive whose offer was withdrawn: its application has
// cancelled it, or its message does not come.
func (r *recv) withdrawal() shm.Status {
	if r.refused {
		return shm.StatusPeerLeft
	}
	return shm.StatusCancelled
}
