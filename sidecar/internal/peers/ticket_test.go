package peers

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// byHand returns a mesh whose steps a test executes itself, as pod 0, which dials pod 1.
func byHand(t *testing.T, patience time.Duration) (dialler *Mesh, acceptor *node) {
	t.Helper()
	j := newJob(t, "j", time.Hour)
	acceptor = j.nodes(2, []int{1}, func(c *Config) { c.HandshakeTimeout = patience })[0]
	cfg := acceptor.cfg
	cfg.Self, cfg.TLS, cfg.Log = 0, j.credentials(0), slog.New(slog.DiscardHandler)
	return &Mesh{cfg: cfg, ctx: t.Context(), accepted: map[link.Peer]bool{}}, acceptor
}

func (m *Mesh) ticket(t *testing.T) (ticketID, []byte) {
	t.Helper()
	id, key, err := m.dialControl(t.Context(), 1, new(dialResult))
	if err != nil {
		t.Fatal(err)
	}
	return id, key
}

// TestTicketIsGoodOnce checks that a recorded data connection cannot be repeated.
func TestTicketIsGoodOnce(t *testing.T) {
	m, n := byHand(t, patience)
	id, key := m.ticket(t)
	if err := proveDial(n.dialRaw(), id, key); err != nil {
		t.Fatal(err)
	}
	n.waitConnected(0, 1)
	if err := proveDial(n.dialRaw(), id, key); !errors.Is(err, io.EOF) {
		t.Errorf("the same ticket again: %v, want the end", err)
	}
	wait(t, "the refusal", func() bool { return n.log.has("unknown, used or expired") })
	if got := n.count(0); got != 1 {
		t.Errorf("%d connections handed over, want 1", got)
	}
}

func TestWrongProof(t *testing.T) {
	m, n := byHand(t, patience)
	id, key := m.ticket(t)
	key[0]++
	if err := proveDial(n.dialRaw(), id, key); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
	key[0]--
	if err := proveDial(n.dialRaw(), id, key); !errors.Is(err, io.EOF) {
		t.Errorf("a ticket after a wrong proof: %v, want the end", err)
	}
	wait(t, "the refusal", func() bool { return n.log.has(errProof.Error()) })
	if n.count(0) != 0 {
		t.Error("a connection was handed over")
	}
}

// TestOneTicketAPeer checks that however often a peer asks, only the last ticket is
// valid.
func TestOneTicketAPeer(t *testing.T) {
	m, n := byHand(t, patience)
	first, firstKey := m.ticket(t)
	for range 9 {
		m.ticket(t)
	}
	last, lastKey := m.ticket(t)
	n.Mesh.mu.Lock()
	if got := len(n.tickets); got != 1 {
		t.Errorf("%d tickets kept, want 1", got)
	}
	n.Mesh.mu.Unlock()
	if err := proveDial(n.dialRaw(), first, firstKey); !errors.Is(err, io.EOF) {
		t.Errorf("the first ticket: %v, want the end", err)
	}
	if err := proveDial(n.dialRaw(), last, lastKey); err != nil {
		t.Errorf("the last ticket: %v", err)
	}
	n.waitConnected(0, 1)
}

func TestTicketExpires(t *testing.T) {
	m, n := byHand(t, time.Second)
	id, key := m.ticket(t)
	wait(t, "the ticket to expire", func() bool {
		n.Mesh.mu.Lock()
		defer n.Mesh.mu.Unlock()
		return len(n.tickets) == 0
	})
	if err := proveDial(n.dialRaw(), id, key); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

// TestFalseAcceptor checks that an acceptor without the secret cannot answer.
func TestFalseAcceptor(t *testing.T) {
	m, n := byHand(t, patience)
	id, key := m.ticket(t)
	n.Mesh.mu.Lock()
	n.tickets[0].key = append([]byte{key[0] + 1}, key[1:]...)
	n.Mesh.mu.Unlock()
	if err := proveDial(n.dialRaw(), id, key); err == nil {
		t.Error("the dialler accepted an acceptor with another secret")
	}
}
