package obs

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// Report is one sidecar's part of a job's communication report.
type Report struct {
	Pod       int        `json:"pod"`
	Ranks     int        `json:"ranks"`
	FirstRank int        `json:"firstRank"`
	Protocols []Protocol `json:"protocols"`
	// Collectives has the algorithms that collectives have used.
	Collectives []Collective `json:"collectives,omitempty"`
	Cells       []Cell       `json:"cells"`
	Rest        Cell         `json:"rest,omitzero"` // to partners beyond the 4,096 of a rank that have cells of their own; it names no ranks
	Totals      Totals       `json:"totals"`
	Process     Process      `json:"process,omitzero"` // processor time and context switches of the sidecar
	// Transport lists the transports in use, one entry each.
	Transport []podlife.Traffic `json:"transport"`
	Paths     []link.Path       `json:"paths,omitempty"`   // bytes by path, if the link between pods has several for a peer
	Exposed   link.LentCounts   `json:"exposed,omitzero"`  // operations on memory that ranks have registered themselves
	Copies    copyeng.Stats     `json:"copies,omitzero"`   // copies within the pod and the machine, by engine
	Buffers   []Buffers         `json:"buffers,omitempty"` // one entry for each rank, if the link chooses between copying and gathering
	Times     []trace.Summary   `json:"times,omitempty"`   // each rank's calls and their durations
	Waits     []why.Rank        `json:"waits,omitempty"`   // what each rank waits for now
	Failure   *Failure          `json:"failure,omitempty"`
}

// Failure is why the job failed, as the sidecar knows it.
type Failure struct {
	Rank   uint32    `json:"rank"` // shm.AnySource: no rank is named
	Code   uint32    `json:"code"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Words returns the failure in the form of the termination message.
func (f *Failure) Words() podlife.Failure {
	w := podlife.Failure{Rank: podlife.NoRank, Code: int(max(f.Code, 1)), Reason: podlife.ReasonOf(f.Reason), Text: f.Reason, Time: f.Time}
	if f.Rank != shm.AnySource {
		w.Rank = int(f.Rank)
	}
	return w
}

// Totals are the counters that `outrigger top` shows.
type Totals struct {
	FramesIn, FramesOut, BytesIn, BytesOut uint64
	Expected, Unexpected                   uint64
	UnexpectedBytes                        uint64
	Sends, Receives                        int
	CreditStalls, Reconnects               uint64
	Busy, Idle                             uint64
}

// Messages returns how many messages the sidecar has handled: those that ranks of its pod have
// received, and those that they have sent to other pods.
func (r *Report) Messages() uint64 {
	n := r.Totals.Expected + r.Totals.Unexpected
	for _, t := range r.Transport {
		if t.Transport != transportLocal {
			n += t.Messages
		}
	}
	return n
}

// Cell is the traffic from one rank to another.
type Cell struct{ Src, Dst, Messages, Bytes uint64 }

// NewReport makes the report from a snapshot and the cells.
func NewReport(s *Sources, p *Snapshot, cells []Cell, rest Cell) Report {
	c := &p.Core
	r := Report{Pod: s.Pod, Ranks: s.Ranks, FirstRank: s.FirstRank, Protocols: Protocols(c), Collectives: Collectives(c), Failure: s.Failure(), Transport: Transports(s, p), Paths: p.Paths, Exposed: p.Lent, Copies: p.Copies, Buffers: p.Buffers, Times: p.Times, Process: process(), Cells: cells, Rest: rest, Totals: Totals{
		FramesIn: c.FramesIn, FramesOut: c.FramesOut, BytesIn: p.BytesIn, BytesOut: p.BytesOut, Expected: c.Expected,
		Unexpected: c.Unexpected, UnexpectedBytes: c.UnexpectedBytes, Sends: c.Sends, Receives: c.Receives,
		CreditStalls: c.CreditStalls, Reconnects: c.Reconnects, Busy: p.Busy, Idle: p.Idle,
	}}
	return r
}

// transportLocal is the name of the memory that ranks of one pod share.
const transportLocal = "local"

// mixed moves the peers that were reached by sockets only, and not by RDMA or shared
// memory, from remote to an entry of their own. Messages are not counted by transport: they
// stay with remote if any peer was reached by it.
func mixed(remote *podlife.Traffic, direct int) podlife.Traffic {
	rest := podlife.Traffic{Transport: bootstrap.TransportTCP, Peers: remote.Peers - direct}
	remote.Peers = direct
	if direct == 0 {
		rest.Messages, rest.Bytes = remote.Messages, remote.Bytes
		remote.Messages, remote.Bytes = 0, 0
	}
	return rest
}

// Transports lists the transports in use: the pod's memory if its ranks exchange messages,
// and the transport between pods if a peer was reached by it.
func Transports(s *Sources, p *Snapshot) []podlife.Traffic {
	c := &p.Core
	local := podlife.Traffic{Transport: transportLocal, Messages: c.Local.Messages, Bytes: c.Local.Bytes}
	remote := podlife.Traffic{Transport: s.Transport, Peers: c.Peers, Messages: c.Remote.Messages, Bytes: c.Remote.Bytes}
	all := []podlife.Traffic{local, remote}
	if s.Transport != bootstrap.TransportTCP && p.Direct < c.Peers {
		all = append(all, mixed(&all[1], p.Direct))
	}
	list := []podlife.Traffic{}
	for _, t := range all {
		if t.Messages > 0 || t.Peers > 0 {
			list = append(list, t)
		}
	}
	return list
}
