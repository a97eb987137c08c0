package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Asker asks sidecars over HTTP what they use. What they answer is shown and
// not acted upon, and is bounded. Where a network policy keeps the operator from
// pods every question would cost its whole time: after one that got no answer,
// none is asked for a while.
type Asker struct {
	Client *http.Client

	silent atomic.Int64 // until then nobody is asked, Unix nanoseconds
}

// Bounds of one question, and the pause after one without an answer.
const (
	askTime   = time.Second
	answerMax = 8 << 20
	askPause  = time.Minute
)

// NewAsker makes an Asker.
func NewAsker() *Asker {
	return &Asker{Client: &http.Client{Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}}
}

// InUse asks the sidecar of a pod.
func (a *Asker) InUse(ctx context.Context, p *corev1.Pod) []string {
	if p.Status.PodIP == "" || time.Now().UnixNano() < a.silent.Load() {
		return nil
	}
	found, err := a.ask(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/report")
	if err != nil {
		a.silent.Store(time.Now().Add(askPause).UnixNano())
		log.FromContext(ctx).V(1).Info("a sidecar did not say what it uses", "pod", p.Name, "cause", err.Error())
	}
	return found
}

func (a *Asker) ask(ctx context.Context, url string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var said struct {
		Transport []podlife.Traffic `json:"transport"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerMax)).Decode(&said); err != nil {
		return nil, err
	}
	var found []string
	for _, t := range said.Transport[:min(len(said.Transport), podlife.TrafficMax)] {
		if t.Transport != "local" && len(t.Transport) < 32 {
			found = append(found, t.Transport)
		}
	}
	return found, nil
}
