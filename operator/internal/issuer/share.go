package issuer

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ration bounds the requests of each caller: a rate per second and a burst.
type ration struct {
	rate, burst float64
	max         int // callers that are tracked, 150 bytes each
}

// Bounds per caller. A caller with a valid token is identified by its pod, others only
// by their address, which is meaningful only if addresses are checked.
var (
	// A sidecar asks for its certificate once, and repeats a failed request after
	// pauses of up to 15 seconds. For pods of other controllers it also asks for the
	// addresses of each part of its job when it starts, and again, with pauses of up to
	// 5 seconds, while pods of the part have no address. An answer has up to 30 KiB,
	// and costs a lookup of 256 pods. 100 parts are a job of 25,600 pods; sidecars of
	// larger jobs wait some seconds.
	perPod = ration{rate: 5, burst: 100, max: 64 << 10}
	// perAddress applies before a token is read. Pods on the network of their node share one
	// address.
	perAddress = ration{rate: 20, burst: 400, max: 64 << 10}
	// handshakesPerAddress applies before a handshake, which costs more than the rest of a
	// request. The rate is twice that of requests, so that a caller first gets an answer that
	// explains the refusal.
	handshakesPerAddress = ration{rate: 40, burst: 800, max: 64 << 10}
	// handshakesPerNetwork is the same bound for all addresses of an IPv6 /64, since one
	// machine may use any number of them. In some clusters all pods are in one /64, and those
	// of the largest job may connect at once.
	handshakesPerNetwork = ration{rate: 400, burst: 8000, max: 64 << 10}
	// Reviews of tokens that the published keys do not verify: the share of one address
	// in strangeRate.
	strangePerAddress = ration{rate: strangeRate / 5, burst: strangeBurst / 5, max: 16 << 10}
	// Reads of callers at the API server: shares in searchRate. Pods without a sidecar
	// can have valid tokens too, and may send any number of requests.
	searchPerNamespace = ration{rate: searchRate / 5, burst: searchBurst / 5, max: 1 << 10}
	searchPerPod       = ration{rate: 1, burst: 5, max: 16 << 10}
)

// shares holds the remaining requests of each caller.
type shares struct {
	ration

	mu   sync.Mutex // guards left
	left map[string]*rate.Limiter
}

func (r ration) shares() *shares { return &shares{ration: r, left: map[string]*rate.Limiter{}} }

// spend takes one request of a caller. If none is left, it returns the time until the
// next one.
func (s *shares) spend(caller string) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left[caller]
	if l == nil {
		if len(s.left) >= s.max {
			maps.DeleteFunc(s.left, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= s.burst })
		}
		if len(s.left) >= s.max {
			s.left = map[string]*rate.Limiter{} // the total bounds still apply
		}
		l = rate.NewLimiter(rate.Limit(s.rate), int(s.burst))
		s.left[caller] = l
	}
	if l.Allow() {
		return 0
	}
	return max(time.Duration((1-l.Tokens())/s.rate*float64(time.Second)), 1)
}

// tooOften returns the refusal of a caller that has to wait.
func tooOften(wait time.Duration, format string, a ...any) error {
	seconds := int(math.Ceil(wait.Seconds()))
	return &refusal{status: http.StatusTooManyRequests, cause: fmt.Sprintf(format, a...) + fmt.Sprintf(": ask again in %d s", seconds), after: seconds}
}
