package pmi

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsAreTheLaunchersUsers: who is another user than the one who asked first
// neither starts commands in a pod nor gets any.
func TestCommandsAreTheLaunchersUsers(t *testing.T) {
	s := New(Config{Count: 1, Layout: []int{1}, Job: "kvs", Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "pmi"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	defer func() {
		_ = l.Close()
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	other := uint32(os.Geteuid() + 1)
	s.offers.owner = &other
	for line, want := range map[string]string{
		"cmd=outrigger_exec pod=0": "commands_of_this_pod_are_those_of_the_user",
		"cmd=outrigger_serve":      "",
	} {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(conn, line); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(answer, want) || want == "" && err == nil {
			t.Errorf("%s: %q, %v", line, answer, err)
		}
		_ = conn.Close() // it was for this alone
	}
	if s.offers.waiting != nil {
		t.Error("another user serves")
	}
}
