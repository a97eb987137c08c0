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

// ration is what one caller of many may cost: so much a second, and so much at once.
type ration struct {
	rate, burst float64
	max         int // callers of which it is known what they have used, 150 bytes each
}

// What callers may cost. Of a good token its pod is known, of others the address alone, which
// says something only if addresses are checked.
var (
	// A sidecar asks once for its certificate, and again with pauses of up to 15 seconds; of
	// pods that other controllers make it asks for each part of its job when it starts, and
	// again while pods of the part have no address, with pauses of up to 5 seconds. An answer
	// has up to 30 KiB, and a look at 256 pods behind it. 100 parts are a job of 25,600 pods:
	// sidecars of larger ones wait some seconds.
	perPod = ration{rate: 5, burst: 100, max: 64 << 10}
	// Before a token is read: pods with the network of their node have one address.
	perAddress = ration{rate: 20, burst: 400, max: 64 << 10}
	// Before a handshake, which costs more than what follows it: twice as many, so that a
	// caller is told first why it is refused.
	handshakesPerAddress = ration{rate: 40, burst: 800, max: 64 << 10}
	// Likewise, of all addresses of a /64 of IPv6, of which a machine may use any number. In
	// some clusters one /64 has all pods: those of the largest job may come at once.
	handshakesPerNetwork = ration{rate: 400, burst: 8000, max: 64 << 10}
	// Reviews of tokens that published keys do not judge, of those for all.
	strangePerAddress = ration{rate: strangeRate / 5, burst: strangeBurst / 5, max: 16 << 10}
	// Second looks at the API server, of those for all: pods that are none of ours have good
	// tokens, too, and ask as often as they like.
	searchPerNamespace = ration{rate: searchRate / 5, burst: searchBurst / 5, max: 1 << 10}
	searchPerPod       = ration{rate: 1, burst: 5, max: 16 << 10}
)

// shares are what is left to each caller.
type shares struct {
	ration

	mu   sync.Mutex // guards left
	left map[string]*rate.Limiter
}

func (r ration) shares() *shares { return &shares{ration: r, left: map[string]*rate.Limiter{}} }

// take takes one of a caller's. If none is left, it returns when there is one again.
func (s *shares) take(caller string) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left[caller]
	if l == nil {
		if len(s.left) >= s.max {
			maps.DeleteFunc(s.left, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= s.burst })
		}
		if len(s.left) >= s.max {
			s.left = map[string]*rate.Limiter{} // what is for all bounds them still
		}
		l = rate.NewLimiter(rate.Limit(s.rate), int(s.burst))
		s.left[caller] = l
	}
	if l.Allow() {
		return 0
	}
	return max(time.Duration((1-l.Tokens())/s.rate*float64(time.Second)), 1)
}

// tooOften refuses a caller that has to wait.
func tooOften(wait time.Duration, format string, a ...any) error {
	seconds := int(math.Ceil(wait.Seconds()))
	return &refusal{status: http.StatusTooManyRequests, cause: fmt.Sprintf(format, a...) + fmt.Sprintf(": ask again in %d s", seconds), after: seconds}
}
