package pmi

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCommandsAreTheLaunchersUsers checks that another user than the one that asked first
// neither starts commands in a pod nor serves them.
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
		"cmd=outrigger_exec pod=0": "only_the_user_that_started_the_ranks",
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
		_ = conn.Close() // its request is complete
	}
	if s.offers.waiting != nil {
		t.Error("another user serves")
	}
}

// TestCommandsOfAgentsThatAreGone checks that a command ends when its agent goes, however
// long it may wait otherwise, in its own pod and in the other one, and that another agent
// gets the launcher.
func TestCommandsOfAgentsThatAreGone(t *testing.T) {
	var pods [2]*Server
	var at [2]string
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	for pod := range pods {
		pods[pod] = New(Config{
			First: pod, Count: 1, Layout: []int{1, 1, 1}, Job: "kvs", Log: slog.New(slog.DiscardHandler), Within: 7 * 24 * time.Hour,
			Reach: func(ctx context.Context, to int) (net.Conn, error) {
				if to == 2 { // the pod does not start
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return nil, err
				}
				defer func() { _ = l.Close() }() // one connection
				here, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return nil, err
				}
				there, err := l.Accept()
				if err != nil {
					return nil, err
				}
				serving.Go(func() {
					_ = pods[to].ServeExec(context.Background(), there) // the agent is told
					_ = there.Close()                                   // as above
				})
				return here, nil
			},
		})
		at[pod] = filepath.Join(t.TempDir(), "pmi")
		l, err := net.Listen("unix", at[pod])
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			if err := pods[pod].Serve(l); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			_ = l.Close() // it has served
			pods[pod].Close()
		})
	}
	under := func(pod int) int {
		pods[pod].offers.mu.Lock()
		defer pods[pod].offers.mu.Unlock()
		return pods[pod].offers.under
	}
	settles := func(what string, want int, of ...int) {
		t.Helper()
		for _, pod := range of {
			for end := time.Now().Add(20 * time.Second); under(pod) != want; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: %d commands wait in pod %d, want %d", what, under(pod), pod, want)
				}
			}
		}
	}
	for _, c := range []struct {
		to      int
		waiting []int
	}{{0, []int{0}}, {1, []int{0, 1}}, {2, []int{0}}} {
		agent := dialed(t, at[0])
		if _, err := fmt.Fprintf(agent, "cmd=outrigger_exec pod=%d\n%s", c.to, strings.Repeat("what it says then", 1000)); err != nil {
			t.Fatal(err)
		}
		settles(fmt.Sprint("for pod ", c.to), 1, c.waiting...)
		if err := agent.Close(); err != nil {
			t.Fatal(err)
		}
		settles(fmt.Sprint("of an agent that has gone, for pod ", c.to), 0, c.waiting...)
	}
	// An agent that stays is served, with all bytes that it has sent.
	agent, launcher := dialed(t, at[0]), dialed(t, at[1])
	if _, err := fmt.Fprintln(agent, "cmd=outrigger_exec pod=1\nthe command"); err != nil {
		t.Fatal(err)
	}
	settles("of one that stays", 1, 0, 1)
	if _, err := fmt.Fprintln(launcher, "cmd=outrigger_serve"); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(launcher)
	for _, want := range []string{"cmd=exec\n", "the command\n"} {
		if line, err := said.ReadString('\n'); err != nil || line != want {
			t.Errorf("the launcher reads %q, %v, want %q", line, err, want)
		}
	}
	if _, err := fmt.Fprintln(launcher, "its output"); err != nil {
		t.Fatal(err)
	}
	heard := bufio.NewReader(agent)
	for _, want := range []string{"cmd=exec_result rc=0\n", "its output\n"} {
		if line, err := heard.ReadString('\n'); err != nil || line != want {
			t.Errorf("the agent reads %q, %v, want %q", line, err, want)
		}
	}
	if _, err := agent.Close(), launcher.Close(); err != nil {
		t.Fatal(err)
	}
	settles("at the end", 0, 0, 1)
}

func dialed(t *testing.T, at string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
