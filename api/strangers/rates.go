package strangers

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates bounds how many connections a second one address may open, and twice as many at once.
// Addresses of one /64 of IPv6, of which a machine may use any number, may open networkRate as many
// together. Loopback has no such bound: its processes share the processors anyway.
type Rates struct {
	perSecond float64 // 0: any number

	mu                  sync.Mutex // guards what follows
	addresses, networks map[string]*rate.Limiter
	now                 func() time.Time
}

// NewRates makes a Rates of which no connection was opened.
func NewRates(perSecond float64) *Rates {
	return &Rates{perSecond: perSecond, addresses: map[string]*rate.Limiter{}, networks: map[string]*rate.Limiter{}, now: time.Now}
}

// ratesMax bounds the addresses, and the networks, of which it is known how many connections
// they have opened; what is left out begins anew.
const ratesMax = 1024

// networkRate is how many times as many connections all addresses of a /64 may open as one of
// them. It is not 1, because nodes may be in one /64 with pods: a pod that uses up the rate of
// its own address keeps no probe of a kubelet out.
const networkRate = 8

// loopback is the address of all of them.
const loopback = "loopback"

// Often counts a connection of an address, as Address has it, and reports whether the address has
// opened more than it may.
func (r *Rates) Often(from string) bool {
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

// allows takes one of the connections that an address or a network may open. r.mu is held.
func (r *Rates) allows(known map[string]*rate.Limiter, of string, perSecond float64) bool {
	l := known[of]
	if l == nil {
		if len(known) >= ratesMax {
			clear(known)
		}
		l = rate.NewLimiter(rate.Limit(perSecond), max(int(2*perSecond), 1))
		known[of] = l
	}
	return l.AllowN(r.now(), 1)
}

// Network is the /64 of an address of IPv6; empty: it is another one.
func Network(from string) string {
	ip, err := netip.ParseAddr(from)
	if err != nil || !ip.Is6() {
		return ""
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// Address is the address of a client, without its port. A process may use any loopback
// address, so that these count as one.
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
