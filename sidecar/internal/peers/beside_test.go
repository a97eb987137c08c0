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

// TestBeside: a connection that is not for data reaches the handler of its name
// with its peer known, and ends with the mesh.
func TestBeside(t *testing.T) {
	type visit struct {
		peer link.Peer
		said string
	}
	visits := make(chan visit, 1)
	serve := func(_ context.Context, peer link.Peer, conn net.Conn) error {
		var b [5]byte
		_, err := io.ReadFull(conn, b[:])
		visits <- visit{peer, string(b[:])}
		_, _ = conn.Read(b[:]) // its end
		return err
	}
	nodes := newJob(t, "beside", time.Hour).nodes(2, []int{0, 1}, func(c *Config) { c.Beside = map[string]Handler{"test/1": serve} })
	for _, pair := range [][2]int{{0, 1}, {1, 0}} { // whoever has the lower number
		conn, err := nodes[pair[0]].Open(t.Context(), link.Peer(pair[1]), "test/1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if v := <-visits; v.peer != link.Peer(pair[0]) || v.said != "hello" {
			t.Errorf("pod %d was heard as %+v", pair[0], v)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBesideUnknown: a name that the peer does not know, or a peer that is not
// there, is an error when the caller gives up.
func TestBesideUnknown(t *testing.T) {
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

// TestTelling: what the end of ctx has cut off hides nothing that was told before.
func TestTelling(t *testing.T) {
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
		if got := telling(x.ctx, x.before, x.last); got != x.want { //nolint:errorlint // that very one
			t.Errorf("%v, then %v: %v, want %v", x.before, x.last, got, x.want)
		}
	}
}
