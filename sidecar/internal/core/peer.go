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

	ranks int    // that it hosts,
	first uint32 // the lowest of them
	last  uint32 // and the highest

	toldLeft int // of the ranks that have left here, those that it was told of

	gen     uint64   // of its ranks' attachments
	genTold uint64   // generation of this sidecar that it was told of
	early   []uint32 // of its ranks in a generation that has not begun here, those that have left it
	renews  bool     // it knows further generations

	byeSeq uint64 // number of the frame with our goodbye; 0: it was not said

	in inbound
}

// inbound is the payload of a one-sided operation that is being placed (channel.Peer.Placing).
type inbound struct {
	of      onesided.Inbound
	held    bool // its session is held
	session SessionID
}

func (p *peer) init(of *channel.Peer, pod *ranks.Pod) {
	p.Peer, p.Pod = of, pod
	p.gen, p.genTold = 1, 1
}
