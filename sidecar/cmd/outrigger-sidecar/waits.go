package main

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// waits tells what the ranks of this pod wait for.
func (d *daemon) waits() (ranks []why.Rank, err error) {
	err = d.engine.Waits(func(now, quiet int64, w core.Waits) { ranks = append(ranks, rankOf(now, quiet, &w)) })
	return ranks, err
}

func rankOf(now, quiet int64, w *core.Waits) why.Rank {
	r := why.Rank{Rank: int(w.Rank), Quiet: time.Duration(quiet).Seconds(), More: w.More, Count: w.Parked}
	switch {
	case w.Left:
		r.State = why.Left
	case !w.Attached:
		r.State = why.NotStarted
	}
	for i := range w.Oldest {
		r.Waits = append(r.Waits, waitOf(now, &w.Oldest[i]))
	}
	for _, m := range w.Near {
		r.Here = append(r.Here, why.Message{Source: int(m.Source), Context: m.Context, Tag: m.Tag, Bytes: m.Bytes})
	}
	return r
}

func waitOf(now int64, w *core.Wait) why.Wait {
	x := why.Wait{
		Seconds: time.Duration(now - w.Since).Seconds(), Peer: why.Any, Context: w.Context, Tag: w.Tag, Ignore: w.Ignore, Bytes: w.Bytes, Moving: w.Moving,
		Round: w.Round, Rounds: w.Rounds, Number: w.Number, Group: w.Group,
	}
	if w.Peer != shm.AnySource {
		x.Peer = int(w.Peer)
	}
	for _, r := range w.For {
		x.For = append(x.For, int(r))
	}
	switch w.Kind {
	case core.WaitRecv:
		x.Kind = why.Recv
	case core.WaitSend:
		x.Kind = why.Send
	case core.WaitProbe:
		x.Kind = why.Probe
	case core.WaitColl:
		x.Kind, x.Name = why.Collective, coll.Kind(w.Op).String()
		if w.Root != shm.AnySource {
			x.Name += fmt.Sprint(" of root ", w.Root)
		}
	case core.WaitOneSided:
		x.Kind, x.Name = why.OneSided, oneSided[shm.Op(w.Op)]
	}
	return x
}

var oneSided = map[shm.Op]string{
	shm.OpPut: "put", shm.OpGet: "get", shm.OpAcc: "accumulate", shm.OpFetch: "fetch-and-op", shm.OpCas: "compare-and-swap",
	shm.OpFlush: "flush", shm.OpLock: "lock", shm.OpUnlock: "unlock",
	shm.OpPost: "post", shm.OpStart: "start", shm.OpComplete: "complete", shm.OpWait: "wait",
}
