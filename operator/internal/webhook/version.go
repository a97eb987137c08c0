package webhook

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// minorFor is how long the version of the cluster's Kubernetes is believed: it is upgraded
// while operators run.
const minorFor = time.Minute

// minor is the minor version of the cluster's Kubernetes, as it was read last.
type minor struct {
	mu    sync.Mutex // guards what follows
	at    time.Time
	known int
}

// of is that version, read again when it is too old; 0: it is not known. Without an answer it
// is the last one: the API server itself says what it does not take.
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

// Minor reads a minor version as API servers give it: 33, or 33+ where a provider has
// changed it. 0: it is none.
func Minor(text string) int {
	n, err := strconv.ParseUint(strings.TrimRight(text, "+"), 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}
