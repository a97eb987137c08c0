package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// waits returns what the ranks of this pod wait for.
func (d *daemon) waits() (ranks []why.Rank, err error) {
	err = d.engine.Waits(func(w *engine.Waits) {
		r := rankOf(w, d.doc.Ranks)
		if r.State == "" {
			var stopped bool
			if stopped, r.Frozen = isStopped("/", w.PID); stopped {
				r.Stopped = w.PID
			}
		}
		d.addProcessState(&r)
		ranks = append(ranks, r)
	})
	return ranks, err
}

// addProcessState adds what process management knows of a rank.
func (d *daemon) addProcessState(r *why.Rank) {
	if d.pmi == nil {
		return
	}
	if r.Local = d.pmi.Local(); r.State != why.Left {
		r.Meeting = d.pmi.Meeting(r.Rank).Seconds() // a rank that has left is about to end
	}
	switch {
	case d.pmi.Idle(r.Rank) && r.State == why.NotStarted:
		r.State = why.Ended
	case d.pmi.Between(r.Rank) && r.State == why.Left:
		r.State = why.NotStarted // the next program of the rank has not started
	}
}

func rankOf(w *engine.Waits, ranks int) why.Rank {
	r := why.Rank{Rank: int(w.Rank), Generation: w.Generation, Returns: w.Returns, Quiet: time.Duration(w.Quiet).Seconds(), Free: w.Free && len(w.Oldest)+len(w.Vain)+w.Own > 0, Own: w.Own, Unread: w.Unread, Moves: w.Moving, Others: w.Others, More: w.More, Count: w.Parked}
	switch {
	case w.Left:
		r.State = why.Left
	case !w.Attached:
		r.State = why.NotStarted
	}
	for i := range w.Oldest {
		if w.Repeats != nil && shm.OfAccess(w.Oldest[i].Context) {
			continue // a part of an access that is repeated
		}
		x := waitOf(w.Now, &w.Oldest[i])
		x.FromMPI(w.Tags, ranks)
		r.Waits = append(r.Waits, x)
	}
	for i := range w.Vain {
		x := vainOf(w.Now, &w.Vain[i])
		x.FromMPI(w.Tags, ranks)
		r.Waits = append(r.Waits, x)
	}
	if w.Repeats != nil {
		r.Waits = append(r.Waits, why.Wait{Kind: why.OneSided, Repeats: why.Access, Peer: int(w.Repeats.Target), Seconds: time.Duration(w.Now - w.Repeats.Since).Seconds()})
	}
	if w.MoreVain {
		r.More++
	}
	slices.SortStableFunc(r.Waits, func(a, b why.Wait) int { return cmp.Compare(b.Seconds, a.Seconds) })
	for _, m := range w.Near {
		x := why.Message{Source: int(m.Source), Context: m.Context, Tag: m.Tag, Bytes: m.Bytes}
		x.FromMPI(w.Tags)
		r.Here = append(r.Here, x)
	}
	for i := range w.Past {
		x := waitOf(w.Now, &w.Past[i])
		r.Past = append(r.Past, why.Begun{Context: x.Context, Lead: x.Lead, Number: x.Number, Name: x.Name, Order: x.Order, Count: w.Past[i].Count})
	}
	for _, l := range w.Locks {
		lock := why.Lock{Window: l.Window, More: l.More}
		for _, h := range l.Holders {
			lock.Holders = append(lock.Holders, why.Holder{Rank: int(h.Rank), Seconds: time.Duration(w.Now - h.Since).Seconds()})
		}
		r.Locks = append(r.Locks, lock)
	}
	return r
}

// vainOf describes a probe that a rank repeats in vain.
func vainOf(now int64, p *trace.Probe) why.Wait {
	w := why.Wait{
		Kind: why.Probe, Repeats: why.Iprobe, Seconds: time.Duration(now - p.Since).Seconds(), Peer: why.Any, Context: p.Context, Tag: p.Tag, Ignore: p.Ignore,
	}
	if p.Peer != shm.AnySource {
		w.Peer = int(p.Peer)
	}
	if p.Claims {
		w.Repeats = why.Improbe
	}
	return w
}

func waitOf(now int64, w *core.Wait) why.Wait {
	x := why.Wait{
		Seconds: time.Duration(now - w.Since).Seconds(), Peer: why.Any, Context: w.Context, Tag: w.Tag, Ignore: w.Ignore, Bytes: w.Bytes, Moving: w.Moving,
		Round: w.Round, Rounds: w.Rounds, Number: w.Number, Lead: int(w.Lead), Group: w.Group,
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
		switch {
		case w.Root != shm.AnySource:
			x.Name += fmt.Sprint(" of root ", w.Root)
		case w.Window != 0:
			x.Name = fmt.Sprint("fence of window ", w.Window)
		}
		switch {
		case w.Reduces && w.Commutative:
			x.Order = "commutative"
		case w.Reduces:
			x.Order = "not commutative"
		}
	case core.WaitOneSided:
		x.Kind, x.Name = why.OneSided, oneSided[shm.Op(w.Op)]
	}
	return x
}

var oneSided = map[shm.Op]string{
	shm.OpPut: "put", shm.OpGet: "get", shm.OpAcc: "accumulate", shm.OpFetch: "fetch-and-op", shm.OpCas: "compare-and-swap",
	shm.OpFlush: "flush", shm.OpLock: why.LockName, shm.OpUnlock: "unlock",
	shm.OpPost: "post", shm.OpStart: "start", shm.OpComplete: "complete", shm.OpWait: "wait",
}
