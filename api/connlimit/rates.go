package connlimit

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates bounds how many connections a second one address may open, with a burst of
// twice as many. All addresses of one IPv6 /64 together, of which one machine may use
// any number, may open networkRate times as many. Loopback has no such bound, since its
// processes share the processors anyway.
type Rates struct {
	perSecond float64 // connections per second that one address may open; 0: no bound

	mu                  sync.Mutex // guards the fields below
	addresses, networks map[string]*rate.Limiter
	now                 func() time.Time
}

// NewRates returns a Rates without any connections.
func NewRates(perSecond float64) *Rates {
	return &Rates{perSecond: perSecond, addresses: map[string]*rate.Limiter{}, networks: map[string]*rate.Limiter{}, now: time.Now}
}

// ratesMax bounds the addresses, and the networks, whose connections are counted. A
// count that is dropped starts again.
const ratesMax = 1024

// networkRate is how many times the rate of one address all addresses of a /64 have
// together. It is larger than 1, because nodes and pods may be in one /64: a pod that
// uses up the rate of its own address must not block the probes of a kubelet.
const networkRate = 8

// loopback replaces all loopback addresses.
const loopback = "loopback"

// TooMany counts a connection of an address, in the form of Address, and reports whether
// the address has opened too many.
func (r *Rates) TooMany(from string) bool {
	if r.perSecond <= 0 || from == "" || from == loopback {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.allows(r.addresses, from, r.perSecond) {
		return true
	}
	network := Network(from)
	return network != "" && !r.allows(r.networks, network, networkRate*r.perSecond)
}

// allows counts a connection of an address or a network, and reports whether it is
// allowed. r.mu is held.
func (r *Rates) allows(limiters map[string]*rate.Limiter, of string, perSecond float64) bool {
	l := limiters[of]
	if l == nil {
		if len(limiters) >= ratesMax {
			clear(limiters)
		}
		l = rate.NewLimiter(rate.Limit(perSecond), max(int(2*perSecond), 1))
		limiters[of] = l
	}
	return l.AllowN(r.now(), 1)
}

// Network returns the /64 of an IPv6 address; empty for other addresses.
func Network(from string) string {
	ip, err := netip.ParseAddr(from)
	if err != nil || !ip.Is6() {
		return ""
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// Address returns the address of a client, without its port. A process may use any
// loopback address, so all of them count as one.
func Address(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	ip, ok := netip.AddrFromSlice(t.IP)
	if !ok {
		return ""
	}
	if ip = ip.Unmap(); ip.IsLoopback() {
		return loopback
	}
	return ip.String()
}
