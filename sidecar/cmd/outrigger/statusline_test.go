package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/top"
)

// onScreen returns the text that a terminal shows after written.
func onScreen(written string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(written, "\r\n", "\n"), "\n") {
		// Only erased text is overwritten.
		parts := strings.Split(line, "\r"+ansiEraseLine)
		lines = append(lines, parts[len(parts)-1])
	}
	return strings.Join(lines, "\n")
}

func TestStatusLineGivesWay(t *testing.T) {
	var screen bytes.Buffer
	s := &statusLine{terminal: &screen, width: func() int { return 20 }}
	out := &aboveLine{s, &screen}
	for _, step := range []struct{ status, output, want string }{
		{"0 of 2", "", "0 of 2"},
		{"", "rank 0 here\n", "rank 0 here\n0 of 2"},
		{"1 of 2", "", "rank 0 here\n1 of 2"},
		{"", "no end", "rank 0 here\nno end"},
		{"2 of 2", "", "rank 0 here\nno end"},
		{"", " yet\n", "rank 0 here\nno end yet\n2 of 2"},
		{strings.Repeat("long ", 10), "", "rank 0 here\nno end yet\nlong long long long"},
	} {
		if step.status != "" {
			s.show(step.status)
		}
		if step.output != "" {
			if n, err := io.WriteString(out, step.output); n != len(step.output) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := onScreen(screen.String()); got != step.want {
			t.Errorf("after %q %q the screen shows\n%q, want\n%q", step.status, step.output, got, step.want)
		}
	}
	s.show("")
	if got := onScreen(screen.String()); got != "rank 0 here\nno end yet\n" {
		t.Errorf("at the end the screen shows %q", got)
	}
}

// TestManyWritersShareTheScreen: lines stay whole if several writers write at once.
func TestManyWritersShareTheScreen(t *testing.T) {
	var screen bytes.Buffer
	s := &statusLine{terminal: &screen, width: func() int { return 80 }}
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 200 {
				_, _ = fmt.Fprintf(&aboveLine{s, &screen}, "line %d of %d\n", i, k) // a buffer never fails
				s.show(fmt.Sprint("status ", i))
			}
		})
	}
	all.Wait()
	s.show("")
	lines := strings.Split(onScreen(screen.String()), "\n")
	if len(lines) != 801 || lines[800] != "" {
		t.Fatalf("%d lines, want 800", len(lines)-1)
	}
	for _, line := range lines[:800] {
		if !strings.HasPrefix(line, "line ") || strings.Contains(line, "status") {
			t.Fatalf("line %q", line)
		}
	}
}

func TestStatusText(t *testing.T) {
	begun := time.Unix(1000, 0)
	rows := []top.Job{{Rows: []top.Row{{Messages: 100, Sent: 2e6}, {Messages: 50, Sent: 5e5}, {Fresh: true}, {Err: errors.New("gone")}}}}
	for _, c := range []struct {
		p       jobrun.Progress
		jobs    []top.Job
		seconds int
		want    string
	}{
		{jobrun.Progress{Begun: begun}, nil, 0, "outrigger: 0:00  0 of 4 ranks started"},
		{jobrun.Progress{Begun: begun, Started: 3, Alive: 3}, rows, 61, "outrigger: 1:01  3 of 4 ranks started"},
		{jobrun.Progress{Begun: begun, Started: 4, Alive: 4}, nil, 62, "outrigger: 1:02  4 of 4 ranks running"},
		{jobrun.Progress{Begun: begun, Started: 4, Alive: 1}, rows, 6000, "outrigger: 100:00  1 of 4 ranks running  150 messages/s  2.5 MB/s"},
	} {
		if got := statusText(4, c.p, c.jobs, begun.Add(time.Duration(c.seconds)*time.Second)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// terminal opens a pseudo-terminal: master is the user's side, slave the program's.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() }) // all was read
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestStatusOnATerminal runs a job on a real terminal: the status line is shown while it
// runs, and the ranks' lines are whole at the end.
func TestStatusOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for _, flag := range []string{"--pods=2", "--no-status"} {
		master, slave := terminal(t)
		job := program(t, "run", "-n", "2", flag, "--", "/bin/sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.5; done")
		job.Stdout, job.Stderr = slave, slave
		if err := job.Start(); err != nil {
			t.Fatal(err)
		}
		_ = slave.Close() // the program has its own descriptor
		written := make(chan string)
		go func() {
			b, _ := io.ReadAll(master) // the end of a terminal is an error
			written <- string(b)
		}()
		if err := job.Wait(); err != nil {
			t.Fatal(err)
		}
		text := <-written
		if got, want := strings.Contains(text, "2 of 2 ranks running"), flag != "--no-status"; got != want {
			t.Errorf("%s: a status line: %v\n%q", flag, got, text)
		}
		if want := strings.Contains(text, "messages/s"); want != (flag != "--no-status") {
			t.Errorf("%s: no rates\n%q", flag, text)
		}
		lines := strings.Split(strings.TrimSuffix(onScreen(text), "\n"), "\n")
		for _, rank := range []int{0, 1} {
			next := 1
			for _, line := range lines {
				if line == fmt.Sprintf("[%d] line %d", rank, next) {
					next++
				}
			}
			if next != 6 {
				t.Errorf("%s: %d whole lines of rank %d", flag, next-1, rank)
			}
		}
		if len(lines) != 10 {
			t.Errorf("%s: the screen shows\n%s", flag, strings.Join(lines, "\n"))
		}
	}
}

// TestNoStatusWithoutATerminal: files and pipes get only the ranks' lines.
func TestNoStatusWithoutATerminal(t *testing.T) {
	out, err := program(t, "run", "-n", "1", "--", "/bin/sh", "-c", "echo a; sleep 1.2; echo b").CombinedOutput()
	if err != nil || string(out) != "[0] a\n[0] b\n" {
		t.Errorf("%v, %q", err, out)
	}
}
