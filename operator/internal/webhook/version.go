package webhook

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// minorFor is how long the version of the cluster's Kubernetes is cached: a cluster may
// be upgraded while operators run.
const minorFor = time.Minute

// minor caches the minor version of the cluster's Kubernetes.
type minor struct {
	mu    sync.Mutex // guards what follows
	at    time.Time
	known int
}

// of returns the version, and reads it again if it is too old; 0 if it is not known. If
// a read fails, it returns the last version: the API server itself refuses what it does
// not support.
func (m *minor) of(ctx context.Context, read func(context.Context) (int, error), now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if read == nil || !m.at.IsZero() && now.Sub(m.at).Abs() < minorFor {
		return m.known
	}
	if known, err := read(ctx); err == nil {
		m.known, m.at = known, now
	}
	return m.known
}

// Minor parses a minor version as API servers report it: 33, or 33+ if a provider has
// changed it. It returns 0 for other texts.
func Minor(text string) int {
	n, err := strconv.ParseUint(strings.TrimRight(text, "+"), 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}
