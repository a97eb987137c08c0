package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Pauses between dials. A cluster starts the pods of a job over minutes, and their names
// may be unknown before: dialling continues until the peer answers.
const (
	backoffFirst = 10 * time.Millisecond  // pause after the first failed dial
	backoffMax   = time.Second            // longest pause: a peer that has just started is reached within a second
	askPause     = 200 * time.Millisecond // pause before the same request is repeated
	askAfter     = time.Second            // pause after a break: longer than a connection takes on a busy machine
	askShare     = 5                      // the pause after a break is at most this part of Silence
	logPause     = 30 * time.Second       // before the same failure is logged again
)

// notSilent is the value of silentSince for a peer that is not silent.
const notSilent = time.Duration(-1)

// dialUntil dials with growing, jittered pauses.
func (m *Mesh) dialUntil(ctx context.Context, peer link.Peer) {
	pause, seen := backoffFirst, failureLog{begun: time.Now()}
	heard := newAttention(m.cfg.Silence / attentionParts)
	defer heard.stop()
	silentSince := notSilent
	var since time.Time // time since which data cannot go as required; zero: data can
	m.waitForDial(ctx, peer)
	for ctx.Err() == nil {
		begun, from := time.Now(), heard.elapsed()
		a, err := m.dial(ctx, peer)
		if err == nil {
			m.connected(peer, a.incarnation, a.fd, a.end)
			return
		}
		if errors.Is(err, errOther) || errors.Is(err, pki.ErrStranger) {
			m.setAccepted(peer, false)
		}
		switch {
		case !a.accepted || a.heard:
			silentSince = notSilent
		case silentSince == notSilent:
			silentSince = from
		}
		if m.cannotConnect(&since, begun, err) && ctx.Err() == nil {
			m.fail(peer, err)
			return
		}
		if d, limit := heard.elapsed()-silentSince, m.silence(peer); silentSince != notSilent && heard.isOver(d, limit) && ctx.Err() == nil {
			m.failSilent(peer, limit)
			return
		}
		switch {
		case errors.Is(err, errAsked):
			pause = max(pause, askPause)
		case ctx.Err() == nil && seen.shouldLog(err, time.Now()):
			m.cfg.Log.Info("peer not reached yet, trying again", "peer", peer, "address", m.cfg.Addresses[peer],
				"for", seen.last.Sub(seen.begun).Round(time.Millisecond), "cause", err)
		}
		sleep(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, backoffMax)
	}
}

// silence returns how long a peer that accepts connections may send nothing.
func (m *Mesh) silence(peer link.Peer) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incarnations[peer] == 0 {
		return m.cfg.Early
	}
	return m.cfg.Hung
}

// waitForDial waits, on the higher-numbered side, for the lower-numbered side to dial
// again after a break: that side notices the break, too, and a request to it would be one
// more handshake of both without use. If no connection has arrived by then, this side
// asks for one, since the other side may see no reason to dial.
func (m *Mesh) waitForDial(ctx context.Context, peer link.Peer) {
	m.mu.Lock()
	again := m.incarnations[peer] != 0
	m.mu.Unlock()
	if again && m.cfg.Self > peer {
		sleep(ctx, m.cfg.Ask)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// cannotConnect reports whether a peer has answered, but could not be reached as the job
// requires, for as long as a silent one is waited for.
func (m *Mesh) cannotConnect(since *time.Time, begun time.Time, err error) bool {
	if !errors.Is(err, errNotDirect) {
		*since = time.Time{}
		return false
	}
	if since.IsZero() {
		*since = begun
	}
	return time.Since(*since) >= m.cfg.Silence
}

// fail ends the dialling of a peer for a reason that the peer or this side has given.
func (m *Mesh) fail(peer link.Peer, cause error) {
	m.Cancel(peer)
	if m.cfg.Failed != nil {
		m.cfg.Failed(peer, cause)
	}
}

// failSilent ends the dialling of a silent peer. A peer that has not started accepts no
// connections, unless its socket was opened for it (Early); this one accepts connections,
// and is stopped or hangs.
func (m *Mesh) failSilent(peer link.Peer, after time.Duration) {
	m.fail(peer, fmt.Errorf("it accepts connections and sends nothing for %v", after.Round(100*time.Millisecond)))
}

// failureLog decides which failures to reach a peer are logged: the first, each different
// one, and now and then a repeated one.
type failureLog struct {
	begun, last time.Time
	kind        string
}

func (n *failureLog) shouldLog(err error, now time.Time) bool {
	// Digits are not compared: an error text may have a port that differs in each attempt, such as
	// that of the connection to the resolver.
	kind := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
	if kind == n.kind && now.Sub(n.last) < logPause {
		return false
	}
	n.kind, n.last = kind, now
	return true
}
