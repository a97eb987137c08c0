package core

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// peer is a sidecar of the job: its state in this package, the frames to it, and its pod.
type peer struct {
	*channel.Peer
	*ranks.Pod
	knows bool // the peer knows that the job has failed
	told  bool // the peer has reported the failure to this sidecar

	loss *Failure // failure that is sent to a dead peer if the job has not failed

	ranks int    // number of ranks that the peer hosts
	first uint32 // the lowest of these ranks
	last  uint32 // the highest of these ranks

	toldLeft int // number of ranks of parting.departed that were reported to the peer

	gen     uint64   // generation of the peer's ranks
	genTold uint64   // generation of this sidecar that was last reported to the peer
	early   []uint32 // the peer's ranks that have left a generation that has not begun here
	renews  bool     // the peer supports generations

	byeSeq uint64 // number of the frame Bye to the peer; 0: none was sent

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
