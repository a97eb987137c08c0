package mpi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestAwait checks that a launcher waits for a sidecar that sends what it waits for, over
// connections that end, and returns when the sidecar is ready.
func TestAwait(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	done, told := make(chan error, 1), make(chan string, 16)
	go func() { done <- Await(t.Context(), socket, time.Hour, func(awaits string) { told <- awaits }) }()
	l, err := net.Listen("unix", socket+names.LaunchSuffix) // later than the launcher
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var heard []string
	for _, lines := range [][]string{
		{"cmd=outrigger_waits ", "cmd=outrigger_waits a certificate", "cmd=outrigger_waits a certificate"},
		{}, // its connection is closed
		{"cmd=outrigger_waits a certificate", "cmd=outrigger_waits the node's agent", "nonsense"},
		{strings.Repeat("x", 1<<20)},
		{"cmd=outrigger_waits ", "cmd=outrigger_wait rc=0"},
	} {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "cmd=outrigger_wait\n" {
			t.Errorf("asked %q, %v", line, err)
		}
		for _, line := range lines {
			_, _ = fmt.Fprintln(conn, line) // the launcher may have closed the connection
		}
		_ = conn.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(told)
	for awaits := range told {
		heard = append(heard, awaits)
	}
	if want := []string{"a certificate", "the node's agent", ""}; !slices.Equal(heard, want) {
		t.Errorf("told %q, want %q", heard, want)
	}
}

// TestAwaitGivesUp checks that the wait for a silent sidecar ends, also when ctx ends, and
// that the error has what the sidecar waited for. A sidecar of an older release is ready
// when its socket exists.
func TestAwaitGivesUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	quiet := func(string) {}
	if err := Await(t.Context(), socket, time.Nanosecond, quiet); err == nil || !strings.Contains(err.Error(), "no sidecar at "+socket+" within 1ns") {
		t.Errorf("without a sidecar: %v", err)
	}
	l, err := net.Listen("unix", socket+names.LaunchSuffix)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Await(ctx, socket, time.Hour, func(string) {
			cancel()
			time.Sleep(10 * time.Millisecond) // the end comes before the next read begins
		})
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, "cmd=outrigger_waits a certificate"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "it waits for a certificate") {
		t.Errorf("told to end: %v", err)
	}
	_, _ = conn.Close(), l.Close()
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Await(t.Context(), socket, time.Nanosecond, quiet); err != nil {
		t.Errorf("an older sidecar: %v", err)
	}
}
