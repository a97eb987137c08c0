// Package dns resolves names of cluster services with one query for each, that is one A
// and one AAAA question. A name such as pod.job.namespace.svc has fewer dots than a pod's
// resolver wants (ndots: 5), which would first query it under each domain of its search
// list. Packages peers and certify connect through a Resolver.
package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of queries: how many names are queried at once, and the pauses before the same
// name is queried again, because there was no answer or because none of its addresses
// could be reached. Name servers also cache the answer that a name does not exist, for
// seconds.
const (
	atOnce     = 16                     // names queried at the same time
	pauseFirst = 200 * time.Millisecond // before the second query of a name
	pauseMax   = 5 * time.Second        // longest pause after failed queries
	stalePause = 30 * time.Second       // longest pause after addresses that could not be reached
)

// file is the default of Resolver.File (resolv.conf(5)).
const file = "/etc/resolv.conf"

// Resolver resolves names, and caches the addresses.
type Resolver struct {
	// File is the file with the search list; empty: /etc/resolv.conf.
	File string
	// Lookup queries a name; nil: the system's name servers.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	read   sync.Once
	domain string // domain of the cluster; empty: unknown
	under  chan struct{}

	mu    sync.Mutex // guards names
	names map[string]*name
	dial  net.Dialer
}

// name is the state of a name. The holder of turn owns the other fields, so that there is
// one query at a time.
type name struct {
	turn      chan struct{}
	addresses []netip.Addr
	err       error         // error of the last query
	next      time.Time     // when the name may be queried again
	pause     time.Duration // before the query after that
	failed    bool          // none of addresses could be reached
}

// Dial connects to host:port by TCP, as net.Dialer does.
func (r *Resolver) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return r.dial.DialContext(ctx, "tcp", address)
	}
	n, found, err := r.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range found {
		var conn net.Conn
		conn, err = r.try(ctx, net.JoinHostPort(a.String(), port), len(found)-i)
		if err == nil {
			return conn, nil
		}
	}
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.unreached(n)
	}
	return nil, err
}

// Addresses returns the addresses of a host, which may be a name or an address.
func (r *Resolver) Addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	_, list, err := r.addresses(ctx, host)
	return list, err
}

// try dials one of the remaining addresses, for its share of the time.
func (r *Resolver) try(ctx context.Context, address string, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return r.dial.DialContext(ctx, "tcp", address)
}

// addresses returns the addresses of a host, and queries them if necessary.
func (r *Resolver) addresses(ctx context.Context, host string) (*name, []netip.Addr, error) {
	r.read.Do(r.load)
	r.mu.Lock()
	n := r.names[host]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		r.names[host] = n
	}
	r.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return n, nil, ctx.Err()
	}
	known := len(n.addresses) > 0
	if known && !n.failed || time.Now().Before(n.next) {
		if !known {
			return n, nil, n.err
		}
		return n, n.addresses, nil
	}
	found, err := r.query(ctx, r.Absolute(host))
	n.update(found, err)
	if len(n.addresses) == 0 {
		return n, nil, n.err
	}
	return n, n.addresses, nil
}

// update stores an answer. Known addresses stay if the name server does not answer.
func (n *name) update(found []netip.Addr, err error) {
	n.err = err
	limit := pauseMax
	var missing *net.DNSError
	switch {
	case err == nil:
		n.addresses, limit = found, stalePause
	case errors.As(err, &missing) && missing.IsNotFound:
		n.addresses = nil
	}
	n.failed = false
	n.pause = min(max(2*n.pause, pauseFirst), limit)
	n.next = time.Now().Add(n.pause/2 + rand.N(n.pause))
	if err != nil && len(n.addresses) > 0 {
		n.failed = true
	}
}

// unreached makes a name be queried again, after its pause.
func (r *Resolver) unreached(n *name) {
	n.turn <- struct{}{}
	n.failed = true
	<-n.turn
}

// query queries one name.
func (r *Resolver) query(ctx context.Context, absolute string) ([]netip.Addr, error) {
	select {
	case r.under <- struct{}{}:
		defer func() { <-r.under }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	found, err := r.Lookup(ctx, absolute)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the name server has no address for %s", absolute)
	}
	return found, err
}

// Absolute returns the name under which a host is queried: that of a cluster service gets
// the cluster's domain, which is behind a namespace in the search list
// (hpc.svc.cluster.local). If there is none, as in pods with another dnsPolicy, the
// resolver uses the search list as usual.
func (r *Resolver) Absolute(host string) string {
	r.read.Do(r.load)
	if r.domain == "" || !strings.HasSuffix(host, ".svc") {
		return host
	}
	return host + "." + r.domain + "."
}

func (r *Resolver) load() {
	r.names, r.under = map[string]*name{}, make(chan struct{}, atOnce)
	if r.Lookup == nil {
		r.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
			for i := range found {
				found[i] = found[i].Unmap()
			}
			return found, err
		}
	}
	path := r.File
	if path == "" {
		path = file
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return // names are queried unchanged
	}
	r.domain = domainOf(string(text))
}

// domainOf returns the cluster's domain in a resolv.conf, in which the last search line
// counts.
func domainOf(text string) (domain string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		domain = ""
		for _, entry := range words[1:] {
			labels := strings.SplitN(strings.TrimSuffix(entry, "."), ".", 3)
			if len(labels) == 3 && labels[1] == "svc" && domain == "" {
				domain = labels[2]
			}
		}
	}
	return domain
}
