package core

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// peer is what this package has of a sidecar of the job, and the stream of frames to it.
type peer struct {
	*channel.Peer
	*ranks.Pod
	knows bool // it has told that the job failed, or was told
	told  bool // it has told

	loss *Failure // of a dead peer: what to tell it when the job has not failed

	ranks     int    // that it hosts,
	first     uint32 // the lowest of them
	last      uint32 // and the highest
	announced int    // messages of it that wait to be matched, and that it still has

	toldLeft int // of the ranks that have left here, those that it was told of

	gen     uint64   // of its ranks' attachments
	genTold uint64   // generation of this sidecar that it was told of
	early   []uint32 // of its ranks in a generation that has not begun here, those that have left it
	renews  bool     // it knows further generations

	took   uint64 // its goodbye: it had taken less than this frame from here; 0: all, or it has said none
	byeSeq uint64 // number of the frame with our goodbye; 0: it was not said

	retracts int // messages that it was asked to give back, and has not answered

	in     inbound
	offers *offers // of its receives; nil: it has made none
}

// inbound is what the payload that is being placed is for (channel.Peer.Placing).
type inbound struct {
	id      uint64 // receive, message or origin
	kind    placeKind
	of      onesided.InboundKind
	session SessionID
	hold    bool
}

func (p *peer) init(of *channel.Peer, pod *ranks.Pod) {
	p.Peer, p.Pod = of, pod
	p.gen, p.genTold = 1, 1
}
