package controller

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Failures returns the failure of its job that the sidecar of a running pod knows of;
// nil if it knows of none. It returns an error if the sidecar did not answer.
type Failures interface {
	FailureOf(ctx context.Context, p *corev1.Pod) (*podlife.Failure, error)
}

// saidTime bounds the total time of the requests of one reconciliation.
const saidTime = 5 * time.Second

// sayings asks the sidecars of pods that other containers keep running and whose
// launchers have not reported a result. It takes a slot of the waits requests, since
// pods that do not answer would otherwise take the workers from other jobs. Without a
// free slot it returns nil.
func (r *Reconciler) sayings(ctx context.Context, o *verdict.Observation) verdict.Said {
	pods := verdict.Unheard(o)
	if len(pods) == 0 || r.Failures == nil || !r.watch.spare() {
		return nil
	}
	defer r.watch.end()
	ctx, cancel := context.WithTimeout(ctx, saidTime)
	defer cancel()
	said := verdict.Said{}
	var mu sync.Mutex // guards said
	var wg sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for _, p := range pods {
		slots <- struct{}{} // each earlier request ends within saidTime
		wg.Go(func() {
			defer func() { <-slots }()
			f, err := r.Failures.FailureOf(ctx, p)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			said[p.UID] = f
		})
	}
	wg.Wait()
	return said
}

// FailureOf asks the sidecar of a pod. The answer is bounded and checked like a
// termination message, because it is acted upon in the same way.
func (a *Asker) FailureOf(ctx context.Context, p *corev1.Pod) (*podlife.Failure, error) {
	if p.Status.PodIP == "" || a.muted(p) {
		return nil, errSilent
	}
	select {
	case a.under <- struct{}{}:
		defer func() { <-a.under }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var said struct {
		Failure *struct {
			Rank, Code uint32
			Reason     string
			Time       time.Time
		}
	}
	url := "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics)) + "/report"
	err := a.get(ctx, url, answerMax, func(body io.Reader) error { return json.NewDecoder(body).Decode(&said) })
	switch {
	case err != nil:
		if ctx.Err() == nil { // otherwise the caller ended the request
			a.mute(p)
		}
		return nil, err
	case said.Failure == nil:
		return nil, nil
	}
	f := podlife.Failure{Rank: podlife.NoRank, Code: int(max(said.Failure.Code, 1)), Reason: podlife.ReasonOf(said.Failure.Reason), Text: said.Failure.Reason, Time: said.Failure.Time}
	if said.Failure.Rank != shm.AnySource {
		f.Rank = int(said.Failure.Rank)
	}
	m, err := podlife.Parse((&podlife.Message{Kind: podlife.KindSidecar, Failures: []podlife.Failure{f}}).Encode())
	if err != nil {
		return nil, err
	}
	return &m.Failures[0], nil
}
