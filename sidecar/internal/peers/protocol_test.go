package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestProtocol checks that a connection that is not for data reaches the handler of its
// protocol with its peer authenticated, and ends with the mesh.
func TestProtocol(t *testing.T) {
	type visit struct {
		peer link.Peer
		said string
	}
	visits := make(chan visit, 1)
	serve := func(_ context.Context, peer link.Peer, conn net.Conn) error {
		var b [5]byte
		_, err := io.ReadFull(conn, b[:])
		visits <- visit{peer, string(b[:])}
		_, _ = conn.Read(b[:]) // until it ends
		return err
	}
	nodes := newJob(t, "protocols", time.Hour).nodes(2, []int{0, 1}, func(c *Config) { c.Protocols = map[string]Handler{"test/1": serve} })
	for _, pair := range [][2]int{{0, 1}, {1, 0}} { // from the lower-numbered side and from the other one
		conn, err := nodes[pair[0]].Open(t.Context(), link.Peer(pair[1]), "test/1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if v := <-visits; v.peer != link.Peer(pair[0]) || v.said != "hello" {
			t.Errorf("pod %d arrived as %+v", pair[0], v)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUnknownProtocol checks that a protocol that the peer does not serve, or a peer that
// is not there, is an error when the caller's context ends.
func TestUnknownProtocol(t *testing.T) {
	nodes := newJob(t, "unknown", time.Hour).nodes(3, []int{0, 1})
	for peer, want := range map[link.Peer]string{1: "does not speak test/2", 2: "refused"} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := nodes[0].Open(ctx, peer, "test/2")
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("pod %d: %v, want %q", peer, err, want)
		}
	}
}

// TestBetterCause checks that the end of ctx does not hide an earlier reason.
func TestBetterCause(t *testing.T) {
	refused, timeout := errors.New("refused"), errors.New("timeout")
	open, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, end := context.WithCancel(t.Context())
	end()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancelLate()
	for _, x := range []struct {
		ctx                context.Context
		before, last, want error
	}{
		{open, nil, timeout, timeout},
		{open, refused, timeout, timeout},
		{ended, nil, timeout, timeout},
		{ended, refused, timeout, refused},
		{late, refused, timeout, refused},
	} {
		if got := betterCause(x.ctx, x.before, x.last); got != x.want { //nolint:errorlint // the same value
			t.Errorf("%v, then %v: %v, want %v", x.before, x.last, got, x.want)
		}
	}
}
