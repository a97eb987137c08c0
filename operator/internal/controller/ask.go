package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/why"
)

// Asker requests reports from sidecars over HTTP. The answers are bounded. If a network
// policy blocks the operator from the pods, every request takes its full timeout. A pod
// that gave no answer is therefore not asked again for askPause, and requests take at
// most a part of the workers.
type Asker struct {
	Client *http.Client

	under chan struct{} // one element per request under way

	mu     sync.Mutex // guards silent
	silent map[types.UID]time.Time
}

// Bounds of one request, and the pause after a request without an answer.
const (
	askTime        = time.Second
	answerMax      = 8 << 20
	waitsAnswerMax = 4 << 20 // bytes of an answer about waits; 1,024 ranks take 1 MiB
	transportsMax  = 4 << 10 // bytes of the transports in a report
	askPause       = time.Minute
	askAtOnce      = 4
	silentMax      = 4096 // maximum number of pods in Asker.silent
)

// NewAsker makes an Asker.
func NewAsker() *Asker {
	return &Asker{
		Client: &http.Client{
			Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil},
			// The operator does not follow redirects: a pod would otherwise choose what
			// the operator reads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		under: make(chan struct{}, askAtOnce), silent: map[types.UID]time.Time{},
	}
}

// muted reports whether a request to the pod failed within the last askPause.
func (a *Asker) muted(p *corev1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.silent[p.UID])
}

// mute stops requests to a pod for askPause.
func (a *Asker) mute(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.silent) >= silentMax {
		clear(a.silent) // at most one more request is then sent to each pod
	}
	a.silent[p.UID] = time.Now().Add(askPause)
}

// InUse returns the transports that the sidecar of a pod reports; nil if it did not
// answer.
func (a *Asker) InUse(ctx context.Context, p *corev1.Pod) []string {
	if p.Status.PodIP == "" || a.muted(p) {
		return nil
	}
	select {
	case a.under <- struct{}{}:
		defer func() { <-a.under }()
	default:
		return nil // all slots are in use; the transports are also in the termination message of an ended pod
	}
	found, err := a.ask(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/report")
	if err != nil {
		a.mute(p)
		log.FromContext(ctx).V(1).Info("a sidecar did not say what it uses", "pod", p.Name, "cause", err.Error())
	}
	return found
}

// WaitsOf returns what the ranks of a pod wait for, as its sidecar reports it, for at
// most most ranks. The caller bounds the number of requests under way.
func (a *Asker) WaitsOf(ctx context.Context, p *corev1.Pod, most int) (ranks []why.Rank, err error) {
	if p.Status.PodIP == "" || a.muted(p) {
		return nil, errSilent
	}
	err = a.get(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/why", waitsAnswerMax, func(body io.Reader) error {
		ranks, err = why.Read(body, most)
		return err
	})
	if err != nil && ctx.Err() == nil { // otherwise the caller ended the request
		a.mute(p)
	}
	return ranks, err
}

// awaitsMax bounds the bytes that are read of a sidecar's answer to a readiness
// request.
const awaitsMax = 1 << 10

// Awaits returns what the sidecar of a pod that is not ready waits for; empty if
// unknown.
func (a *Asker) Awaits(ctx context.Context, p *corev1.Pod) string {
	if p.Status.PodIP == "" || a.muted(p) {
		return ""
	}
	select {
	case a.under <- struct{}{}:
		defer func() { <-a.under }()
	default:
		return "" // all slots are in use, and the next reconciliation asks again
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/readyz", nil)
	if err != nil {
		return ""
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		a.mute(p)
		return ""
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, awaitsMax))
	awaits, is := strings.CutPrefix(strings.TrimSpace(string(text)), "not ready: ")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !is {
		return ""
	}
	return note(strings.Join(strings.FieldsFunc(awaits, func(r rune) bool { return !unicode.IsPrint(r) }), " "))
}

// errSilent is returned for a pod that is not asked now.
var errSilent = errors.New("it gave no answer a short time ago")

func (a *Asker) ask(ctx context.Context, url string) ([]string, error) {
	var said struct {
		Transport json.RawMessage `json:"transport"`
	}
	err := a.get(ctx, url, answerMax, func(body io.Reader) error { return json.NewDecoder(body).Decode(&said) })
	if err != nil || said.Transport == nil {
		return nil, err
	}
	// Two bytes of JSON can become one element, which takes far more memory.
	if len(said.Transport) > transportsMax {
		return nil, fmt.Errorf("its transports take %d bytes, want at most %d", len(said.Transport), transportsMax)
	}
	var transports []podlife.Traffic
	if err := json.Unmarshal(said.Transport, &transports); err != nil {
		return nil, err
	}
	var found []string
	for _, t := range transports[:min(len(transports), podlife.TrafficMax)] {
		if t.Transport != "local" && len(t.Transport) < 32 {
			found = append(found, t.Transport)
		}
	}
	return found, nil
}

// get requests url and passes at most limit bytes of the answer to read.
func (a *Asker) get(ctx context.Context, url string, limit int64, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return read(io.LimitReader(resp.Body, limit))
}
