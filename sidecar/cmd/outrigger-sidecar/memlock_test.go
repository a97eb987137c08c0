package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/grant"
)

// agentAt starts an agent that answers every request with answer until the end of the test,
// and returns its socket.
func agentAt(t *testing.T, answer func(*grant.Message) *grant.Message) string {
	t.Helper()
	//nolint:usetesting // t.TempDir's names may be too long for a socket
	dir, err := os.MkdirTemp("", "ml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "grant.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return // the test is over
			}
			if m, _, err := grant.Receive(c); err != nil {
				t.Error(err)
			} else if err := grant.Send(c, answer(m), nil); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return socket
}

// limit lowers this process's limit of locked memory until the end of the test.
func limit(t *testing.T, bytes uint64) {
	t.Helper()
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(bytes, now.Cur), Max: now.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &now) })
}

// TestLockedMemory: each result of the request is in the log. A sidecar without devices
// requests nothing and logs nothing.
func TestLockedMemory(t *testing.T) {
	const lots = 1 << 62
	limit(t, 1<<20)
	hca := devices.EnvPrefix + "HCA=" + devices.Encode([]devices.Device{{Kind: "hca", Name: "mlx5_2", Files: []string{"/dev/infiniband/uverbs2"}}})
	grants := func(bytes uint64) func(*grant.Message) *grant.Message {
		return func(m *grant.Message) *grant.Message {
			return &grant.Message{Version: grant.Version, Op: m.Op, Bytes: min(bytes, m.Bytes)}
		}
	}
	refuses := func(*grant.Message) *grant.Message {
		return &grant.Message{Version: grant.Version, Op: grant.End, Error: "the process is in no pod"}
	}
	newer := func(m *grant.Message) *grant.Message {
		return &grant.Message{Version: grant.Version + 1, Op: m.Op, Bytes: m.Bytes}
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx     context.Context
		environ string
		agent   func(*grant.Message) *grant.Message
		bytes   uint64
		want    string // level and words; "" is an empty log
	}{
		"granted":         {t.Context(), hca, grants(lots), lots, "INFO was raised [mlx5_2]"},
		"node's bound":    {t.Context(), hca, grants(1 << 61), lots, "WARN node's bound 2305843009213693952"},
		"refused":         {t.Context(), hca, refuses, lots, "WARN not raised refused the process is in no pod"},
		"another version": {t.Context(), hca, newer, lots, "WARN not raised version"},
		"enough":          {t.Context(), hca, refuses, 1, "INFO suffices"},
		"no device":       {t.Context(), "HOME=/", refuses, lots, ""},
		"packet socket":   {t.Context(), devices.EnvPrefix + "ETHER=" + devices.Encode([]devices.Device{{Kind: devices.KindEther, Name: "net1"}}), refuses, lots, ""},
		"nonsense":        {t.Context(), devices.EnvPrefix + "HCA=mlx5_2", refuses, lots, "WARN is invalid"},
		"no socket":       {t.Context(), hca, nil, lots, "WARN no agent's socket is known"},
		"job has ended":   {gone, hca, refuses, lots, "WARN not raised canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			l := &locker{log: slog.New(slog.NewTextHandler(&out, nil)), environ: []string{c.environ}, bytes: c.bytes, start: newStart(slog.New(slog.DiscardHandler))}
			if c.agent != nil {
				l.socket = agentAt(t, c.agent)
			}
			l.raise(c.ctx)
			for word := range strings.FieldsSeq(c.want) {
				if !strings.Contains(out.String(), word) {
					t.Errorf("no %q in %q", word, out.String())
				}
			}
			if lines := strings.Count(out.String(), "\n"); lines > 1 || (lines == 1) != (c.want != "") {
				t.Errorf("%d lines: %q", lines, out.String())
			}
		})
	}
}
