package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A message may want a reply (L§4.3): its sender has posted a receive for it, and the
// message names that. If nobody will receive the message, nobody will reply, and the
// receive would wait until its peer leaves. Where all is well this costs nothing: the
// number of the receive travels with the message, and comes back only when it is
// thrown away.

// replyTo finds the receive of a request number that takes the reply of a peer. 0: there is
// none that could end by the message. Each is named once, so that who throws messages away
// tells no more ends than there are receives.
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

// onNoReply is told that a message which wanted a reply was thrown away.
func (rx *receiver) onNoReply(p *peer, h *wire.Header) error {
	r := rx.recvs.Get(h.A)
	if r == nil {
		return rx.recvs.Ended(h.A, "no reply for")
	}
	if !r.replies || rx.peerOf(r.pattern.Source) != p {
		return fmt.Errorf("%w: no reply for a receive that waits for none of it", link.ErrProtocol)
	}
	rx.noReply(h.A, shm.Status(h.B))
	return nil
}

// noReply ends a receive whose message does not come. One that has a message keeps it.
func (rx *receiver) noReply(id uint64, status shm.Status) {
	r := rx.recvs.Get(id)
	switch {
	case r == nil || r.matched:
	case r.offered:
		r.refused = true
		rx.withdraw(r, id)
	case r.endpoint.space(r.coll).Cancel(r.posted):
		rx.endRecv(id, r, status)
	}
}

// withdrawal is how a receive ends whose offer was withdrawn: its application wanted no
// more of it, or nobody sends what it waits for.
func (r *recv) withdrawal() shm.Status {
	if r.refused {
		return shm.StatusPeerLeft
	}
	return shm.StatusCancelled
}
