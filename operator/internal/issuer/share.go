package issuer

import (
	"maps"
	"sync"

	"golang.org/x/time/rate"
)

// Second looks a second that callers of one namespace may cost, of those for all: pods
// that are none of ours have good tokens too, and ask as often as they like.
const (
	shareRate, shareBurst = searchRate / 5, searchBurst / 5
	sharesMax             = 1024 // namespaces of which it is known what they have used
)

// shares are what is left to each namespace.
type shares struct {
	mu   sync.Mutex // guards left
	left map[string]*rate.Limiter
}

// take takes one of a namespace's, if any is left.
func (s *shares) take(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left[namespace]
	if l == nil {
		if len(s.left) >= sharesMax {
			maps.DeleteFunc(s.left, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= shareBurst })
		}
		if s.left == nil || len(s.left) >= sharesMax {
			s.left = map[string]*rate.Limiter{} // what is for all bounds them still
		}
		l = rate.NewLimiter(shareRate, shareBurst)
		s.left[namespace] = l
	}
	return l.Allow()
}
