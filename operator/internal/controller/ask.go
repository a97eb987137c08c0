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

// Asker asks sidecars over HTTP what they use. What they answer is shown and
// not acted upon, and is bounded. Where a network policy keeps the operator from
// pods every question costs its whole time: a pod that gave no answer is not
// asked again for a while, and questions take a part of the workers at most.
type Asker struct {
	Client *http.Client

	under chan struct{} // questions under way

	mu     sync.Mutex // guards silent
	silent map[types.UID]time.Time
}

// Bounds of one question, and the pause after one without an answer.
const (
	askTime        = time.Second
	answerMax      = 8 << 20
	waitsAnswerMax = 4 << 20 // 1,024 ranks take 1 MiB
	transportsMax  = 4 << 10 // of the transports in a report
	askPause       = time.Minute
	askAtOnce      = 4
	silentMax      = 4096 // pods remembered
)

// NewAsker makes an Asker.
func NewAsker() *Asker {
	return &Asker{
		Client: &http.Client{
			Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil},
			// A pod that says where to ask instead would choose what the operator reads.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		under: make(chan struct{}, askAtOnce), silent: map[types.UID]time.Time{},
	}
}

// muted reports whether a pod gave no answer a short time ago.
func (a *Asker) muted(p *corev1.Pod) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.silent[p.UID])
}

// mute leaves a pod alone for a while.
func (a *Asker) mute(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.silent) >= silentMax {
		clear(a.silent) // each of them costs one more question
	}
	a.silent[p.UID] = time.Now().Add(askPause)
}

// InUse asks the sidecar of a pod.
func (a *Asker) InUse(ctx context.Context, p *corev1.Pod) []string {
	if p.Status.PodIP == "" || a.muted(p) {
		return nil
	}
	select {
	case a.under <- struct{}{}:
		defer func() { <-a.under }()
	default:
		return nil // the pod leaves word of it when it ends
	}
	found, err := a.ask(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/report")
	if err != nil {
		a.mute(p)
		log.FromContext(ctx).V(1).Info("a sidecar did not say what it uses", "pod", p.Name, "cause", err.Error())
	}
	return found
}

// WaitsOf asks the sidecar of a pod of so many ranks what they wait for. Who asks bounds
// how many questions are under way.
func (a *Asker) WaitsOf(ctx context.Context, p *corev1.Pod, most int) (ranks []why.Rank, err error) {
	if p.Status.PodIP == "" || a.muted(p) {
		return nil, errSilent
	}
	err = a.get(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, strconv.Itoa(names.PortMetrics))+"/why", waitsAnswerMax, func(body io.Reader) error {
		ranks, err = why.Read(body, most)
		return err
	})
	if err != nil && ctx.Err() == nil { // else it had no time to answer
		a.mute(p)
	}
	return ranks, err
}

// awaitsMax bounds what a sidecar says that it waits for, in bytes.
const awaitsMax = 1 << 10

// Awaits asks the sidecar of a pod that is not ready what it waits for.
func (a *Asker) Awaits(ctx context.Context, p *corev1.Pod) string {
	if p.Status.PodIP == "" || a.muted(p) {
		return ""
	}
	select {
	case a.under <- struct{}{}:
		defer func() { <-a.under }()
	default:
		return "" // the next look asks
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

// errSilent says that a pod is not asked now.
var errSilent = errors.New("it gave no answer a short time ago")

func (a *Asker) ask(ctx context.Context, url string) ([]string, error) {
	var said struct {
		Transport json.RawMessage `json:"transport"`
	}
	err := a.get(ctx, url, answerMax, func(body io.Reader) error { return json.NewDecoder(body).Decode(&said) })
	if err != nil || said.Transport == nil {
		return nil, err
	}
	// Two bytes may be one of them, which takes many more.
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

// get has read what a sidecar answers.
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
