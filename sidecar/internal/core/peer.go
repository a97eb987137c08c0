package core

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// peer is a sidecar of the job: what this package knows of it, the frames to it, and its pod.
type peer struct {
	*channel.Peer
	*ranks.Pod
	knows bool // it knows that the job has failed
	told  bool // it has told this sidecar

	loss *Failure // of a dead peer: the failure to tell it if the job has not failed

	ranks int    // that it hosts,
	first uint32 // the lowest of them
	last  uint32 // and the highest

	toldLeft int // how many of parting.departed it was told of

	gen     uint64   // generation of its ranks
	genTold uint64   // generation of this sidecar that it was told of
	early   []uint32 // its ranks that have left a generation which has not begun here
	renews  bool     // it supports generations

	byeSeq uint64 // number of the frame Bye to it; 0: it was not sent

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
