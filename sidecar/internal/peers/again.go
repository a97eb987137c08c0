package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Pauses between dials. A cluster starts the pods of a job over minutes, and
// their names may not be known before: dialling goes on until somebody answers.
const (
	backoffFirst = 10 * time.Millisecond
	backoffMax   = time.Second
	askPause     = 200 * time.Millisecond // before the same question is asked again
	askAfter     = time.Second            // a break: longer than a connection takes on a busy machine
	askShare     = 5                      // of the silence after which a peer is given up: no longer than that part of it
	noticePause  = 30 * time.Second       // before the same failure is logged again
)

// noSilence is since when a peer is silent that is not.
const noSilence = time.Duration(-1)

// dialUntil tries again with growing, jittered pauses.
func (m *Mesh) dialUntil(ctx context.Context, peer link.Peer) {
	pause, seen := backoffFirst, notices{begun: time.Now()}
	heard := newAttention(m.cfg.Silence / attentionParts)
	defer heard.end()
	silentSince := noSilence
	var since time.Time // that data cannot go as it must; zero: it can
	m.leave(ctx, peer)
	for ctx.Err() == nil {
		begun, from := time.Now(), heard.now()
		a, err := m.dial(ctx, peer)
		if err == nil {
			m.connected(peer, a.incarnation, a.fd, a.end)
			return
		}
		switch {
		case !a.accepted || a.heard:
			silentSince = noSilence
		case silentSince == noSilence:
			silentSince = from
		}
		if m.hopeless(&since, begun, err) && ctx.Err() == nil {
			m.abandon(peer, err)
			return
		}
		if d, limit := heard.now()-silentSince, m.silence(peer); silentSince != noSilence && heard.isOver(d, limit) && ctx.Err() == nil {
			m.giveUp(peer, limit)
			return
		}
		switch {
		case errors.Is(err, errAsked):
			pause = max(pause, askPause)
		case ctx.Err() == nil && seen.worth(err, time.Now()):
			m.cfg.Log.Info("peer not reached yet, trying again", "peer", peer, "address", m.cfg.Addresses[peer],
				"for", seen.last.Sub(seen.begun).Round(time.Millisecond), "cause", err)
		}
		rest(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, backoffMax)
	}
}

// silence is for how long a peer that accepts connections may say nothing.
func (m *Mesh) silence(peer link.Peer) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.met[peer] == 0 {
		return m.cfg.Early
	}
	return m.cfg.Silence
}

// leave leaves it to the lower-numbered side to dial again after a break: it has
// the same news, and a question on the way to it is one more handshake of both, of
// which nothing comes. It is asked if no connection has come by then, since it may
// see no reason for one.
func (m *Mesh) leave(ctx context.Context, peer link.Peer) {
	m.mu.Lock()
	again := m.met[peer] != 0
	m.mu.Unlock()
	if again && m.cfg.Self > peer {
		rest(ctx, m.cfg.Ask)
	}
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// hopeless reports that a peer answers, and cannot be reached as the job requires,
// for as long as one that is silent is waited for.
func (m *Mesh) hopeless(since *time.Time, begun time.Time, err error) bool {
	if !errors.Is(err, errNotDirect) {
		*since = time.Time{}
		return false
	}
	if since.IsZero() {
		*since = begun
	}
	return time.Since(*since) >= m.cfg.Silence
}

// abandon ends the dialling of a peer for a reason that it or this side has said.
func (m *Mesh) abandon(peer link.Peer, cause error) {
	m.Cancel(peer)
	if m.cfg.Failed != nil {
		m.cfg.Failed(peer, cause)
	}
}

// giveUp ends the dialling of a peer that does not speak. One that has not
// started yet accepts no connections, but where somebody has opened its socket for it
// (Early); this one has, and is stopped or hangs.
func (m *Mesh) giveUp(peer link.Peer, after time.Duration) {
	m.abandon(peer, fmt.Errorf("it accepts connections and says nothing for %v", after.Round(100*time.Millisecond)))
}

// notices decides which failures to reach a peer are logged: the first, every
// other one, and now and then the same again.
type notices struct {
	begun, last time.Time
	kind        string
}

func (n *notices) worth(err error, now time.Time) bool {
	// The port that a resolver was asked from is another one each time.
	kind := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
	if kind == n.kind && now.Sub(n.last) < noticePause {
		return false
	}
	n.kind, n.last = kind, now
	return true
}
