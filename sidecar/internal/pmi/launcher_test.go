package pmi

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestLauncherWaits checks that a launcher learns what the sidecar waits for, at once when
// that changes, and when the sidecar is ready. Other requests are not answered before that,
// and those of process management never.
func TestLauncherWaits(t *testing.T) {
	var mu sync.Mutex
	awaits, ready, changed := "a certificate", false, make(chan struct{})
	set := func(text string, is bool) {
		mu.Lock()
		defer mu.Unlock()
		awaits, ready = text, is
		close(changed)
		changed = make(chan struct{})
	}
	s := New(Config{First: 0, Count: 1, Layout: []int{1}, Log: slog.New(slog.DiscardHandler), State: func() (string, bool, <-chan struct{}) {
		mu.Lock()
		defer mu.Unlock()
		return awaits, ready, changed
	}})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "run"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.ServeLauncher(l); err != nil {
			t.Error(err)
		}
	})
	defer served.Wait()
	defer s.Close()
	defer func() { _ = l.Close() }()
	ask := func(line string) *bufio.Reader {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintln(conn, line) // the connection may have been closed
		return bufio.NewReader(conn)
	}
	read := func(in *bufio.Reader) string {
		line, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		return strings.TrimSpace(line)
	}
	launcher := ask("cmd=outrigger_wait")
	if line := read(launcher); line != "cmd=outrigger_waits a certificate" {
		t.Errorf("first %q", line)
	}
	if line := read(ask("cmd=outrigger_state")); line != "" {
		t.Errorf("the state of a sidecar that is not ready: %q", line)
	}
	// Connections that are held open, or send too long lines, take no place of the
	// launcher.
	for range 200 {
		ask("cmd=outrigger_wait")
		ask(strings.Repeat("x", lineMax+1))
	}
	set("the node's agent", false)
	for line := ""; line != "cmd=outrigger_waits the node's agent"; {
		if line = read(launcher); line == "" {
			launcher = ask("cmd=outrigger_wait") // its connection was closed, and it asks again
		}
	}
	set("", true)
	for line := ""; line != "cmd=outrigger_wait rc=0"; {
		if line = read(launcher); line == "" {
			launcher = ask("cmd=outrigger_wait")
		}
	}
	for line := ""; line == ""; { // while the others close, there may be no place
		if line = read(ask("cmd=outrigger_state")); line != "" && line != "cmd=outrigger_state rc=0 failed=0" {
			t.Errorf("the state: %q", line)
		}
	}
	s.Lost(0)
	for line := ""; line != "cmd=aborts rank=0 code=1 lost=1"; {
		if line = read(ask("cmd=outrigger_aborts lost=1")); line != "" && line != "cmd=aborts rank=0 code=1 lost=1" {
			t.Fatalf("a lost rank: %q", line)
		}
	}
	// A launcher of an earlier release would take a lost rank for one that aborts.
	if early := (watcher{}); early.wants("cmd=aborts rank=0 code=1"+lostWord) || !early.wants("cmd=aborts rank=0 code=1") {
		t.Error("a launcher that does not ask for lost ranks hears of them, or of no aborts")
	}
	for _, line := range []string{"cmd=outrigger_meet", "cmd=outrigger_fence ranks=1 bytes=65536", "cmd=initack pmiid=0", "cmd=outrigger_serve", "cmd=outrigger_exec pod=0", "mcmd=spawn"} {
		if answer := read(ask(line)); answer != "" {
			t.Errorf("%s is answered with %q", line, answer)
		}
	}
}
