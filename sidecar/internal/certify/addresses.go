package certify

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// Pauses between two requests for the same part of a job. They grow while pods of the
// part have no addresses yet, and while the issuer does not answer: a cluster starts the
// pods of a job over minutes, and each of thousands of sidecars asks for each of its
// peers.
const (
	partFirst = 200 * time.Millisecond // before the second request for a part
	partMax   = 5 * time.Second        // longest pause
)

// Addresses looks up the pods of a job whose document has an AddressesURL. It is a Lookup
// of dns.Resolver, which caches the answers, and asks again when none of a pod's
// addresses can be reached: so it finds a pod whose address has changed.
type Addresses struct {
	issuer  *bootstrap.Issuer
	client  *http.Client
	numbers map[string]int // by host
	parts   []part

	mu    sync.Mutex  // guards the fields below
	later *RetryLater // the last one from the issuer; nil: none
	until time.Time   // no request is sent before
}

// part is the state of the pods of a part. The holder of turn owns the other fields.
type part struct {
	turn  chan struct{}
	pods  int // number of pods
	known map[int][]netip.Addr
	err   error // error of the last request
	asked time.Time
	pause time.Duration
}

// NewAddresses returns an Addresses for pods, by the hosts of their addresses.
func NewAddresses(issuer *bootstrap.Issuer, pods []bootstrap.Pod) (*Addresses, error) {
	client, err := connect(issuer)
	if err != nil {
		return nil, err
	}
	a := &Addresses{issuer: issuer, client: client, numbers: make(map[string]int, len(pods)), parts: make([]part, bootstrap.AddressesPart(len(pods)-1)+1)}
	for i := range a.parts {
		a.parts[i] = part{turn: make(chan struct{}, 1), pods: min(bootstrap.AddressesMax, len(pods)-i*bootstrap.AddressesMax)}
	}
	for i := range pods {
		host, _, err := net.SplitHostPort(pods[i].Address)
		if err != nil {
			return nil, fmt.Errorf("addresses of pods: %w", err)
		}
		a.numbers[host] = i
	}
	return a, nil
}

// Lookup returns the addresses of the pod of a host. One request returns those of all
// pods of its part.
func (a *Addresses) Lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	pod, ok := a.numbers[host]
	if !ok {
		return nil, fmt.Errorf("addresses of pods: the job document has no pod at %s", host)
	}
	p := &a.parts[bootstrap.AddressesPart(pod)]
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if time.Since(p.asked) >= p.pause {
		if l := a.delayed(); l != nil {
			if list := p.known[pod]; len(list) > 0 {
				return list, nil
			}
			return nil, l
		}
		known, err := a.ask(ctx, bootstrap.AddressesPart(pod))
		if err != nil && ctx.Err() != nil {
			return nil, err // the error is the caller's, and not the issuer's
		}
		if err == nil {
			p.known = known
		}
		if p.err, p.asked = err, time.Now(); err != nil || len(known) < p.pods {
			p.pause = min(max(2*p.pause, partFirst), partMax)
		} else {
			p.pause = partFirst
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	if list := p.known[pod]; len(list) > 0 {
		return list, nil
	}
	return nil, &net.DNSError{Err: fmt.Sprintf("waiting for the address of pod %d, which has not started", pod), Name: host, IsNotFound: true, IsTemporary: true}
}

// delayed returns why no request may be sent now, or nil. The issuer bounds the requests
// of a pod, whatever they are about.
func (a *Addresses) delayed() *RetryLater {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.later
	}
	return nil
}

func (a *Addresses) delay(l *RetryLater) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.later, a.until = l, time.Now().Add(l.After)
}

// ask requests the addresses of the pods of a part.
func (a *Addresses) ask(ctx context.Context, part int) (map[int][]netip.Addr, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?part=%d", a.issuer.AddressesURL, part), nil)
	if err != nil {
		return nil, fmt.Errorf("addresses of pods: %w", err)
	}
	if err := authorize(r, a.issuer); err != nil {
		return nil, err
	}
	resp, err := do(a.client, r)
	if err != nil {
		return nil, fmt.Errorf("addresses of pods: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, refusalMax))
		if err != nil {
			return nil, fmt.Errorf("addresses of pods: %w", err)
		}
		if l := retryLater(resp, text); l != nil {
			a.delay(l)
			return nil, l
		}
		return nil, fmt.Errorf("addresses of pods: the issuer answers %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return bootstrap.ReadAddresses(resp.Body, part)
}

// refusalMax bounds the text that is read of a refusal, in bytes.
const refusalMax = 1 << 10
