package pmi

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// TestFencesThatStall checks that connections that announce the bytes of a fence and send
// none take no place of a real fence.
func TestFencesThatStall(t *testing.T) {
	addrs := serve(t)
	for range 2 * fencesMax {
		r := dial(t, addrs[0])
		r.send("cmd=outrigger_fence ranks=2 bytes=1000")
	}
	var both sync.WaitGroup
	for pod, addr := range addrs {
		both.Go(func() {
			if all, err := fence(dial(t, addr), 2-pod, fmt.Sprint(pod)); err != nil || all != "01" {
				t.Errorf("pod %d: %q, %v", pod, all, err)
			}
		})
	}
	both.Wait()
}

// TestMeetingsAreBoundedInBytes checks that the bytes kept for processes that request
// meetings which never complete are bounded, that the processes are told so, and that no
// byte is kept afterwards.
func TestMeetingsAreBoundedInBytes(t *testing.T) {
	const ranks, count = 64, 32
	meetings := NewMeetings(0, []int{ranks, 1}, nil)
	addr := serve(t, func(c *Config) {
		if c.First == 0 {
			c.Count, c.Layout, c.Meetings = ranks, []int{ranks, 1}, meetings
		}
	})[0]
	own := make([]byte, ranks*fenceRankBytes)
	var all sync.WaitGroup
	var conns []net.Conn
	answers := make(chan string, count)
	for i := range count {
		r := dial(t, addr)
		conns = append(conns, r.conn)
		all.Go(func() {
			b := appendMeeting([]byte("cmd=outrigger_meet\n"), Meeting{[]int{0, 1}, fmt.Append(nil, i), own})
			_, _ = r.conn.Write(b) // it may be refused before all is sent
			answers <- r.hear()
		})
	}
	for range count - heldPodMax/len(own) + 1 { // the others wait
		if line := <-answers; !strings.Contains(line, "rc=-1") {
			t.Fatalf("a meeting beyond the bound: %q", line)
		}
	}
	meetings.held.mu.Lock()
	kept := meetings.held.bytes
	meetings.held.mu.Unlock()
	if kept > heldPodMax {
		t.Errorf("%d bytes are kept, at most %d may be", kept, heldPodMax)
	}
	for _, c := range conns {
		_ = c.Close() // ends the waiting connections
	}
	all.Wait()
	for kept > 0 { // until the server has noticed
		time.Sleep(time.Millisecond)
		meetings.held.mu.Lock()
		kept = meetings.held.bytes
		meetings.held.mu.Unlock()
	}
	meetings.empty(t)
}

// TestBudget checks the bounds of one pod, and of all pods together.
func TestBudget(t *testing.T) {
	layout := make([]int, 10)
	for i := range layout {
		layout[i] = 1000
	}
	b := newBudget(layout)
	var kept int64
	var holds []*hold
	for pod := range layout {
		for {
			h := b.of(pod)
			if err := h.grow(1 << 20); err != nil {
				break
			}
			holds = append(holds, h)
			kept += h.bytes
		}
		if b.by[pod] > heldPodMax {
			t.Errorf("%d bytes of pod %d are kept", b.by[pod], pod)
		}
	}
	if most := memory.LaunchBytes(10_000); kept > most || kept < most-1<<20 {
		t.Errorf("%d bytes are kept, at most %d may be", kept, most)
	}
	for _, h := range holds {
		h.give()
	}
	if b.bytes != 0 || len(b.by) != 0 {
		t.Errorf("%d bytes of %v are left", b.bytes, b.by)
	}
	if got, err := b.of(0).read(strings.NewReader("abc"), 4); err == nil {
		t.Errorf("%q was read of three bytes", got)
	}
}

// TestFloodOfSilentConnections checks that a rank and a launcher are served while a process
// connects without end and sends nothing.
func TestFloodOfSilentConnections(t *testing.T) {
	const role = "OUTRIGGER_TEST_FLOOD"
	if at := os.Getenv(role); at != "" {
		var held [200]net.Conn
		for i := 0; ; {
			c, err := net.Dial("unix", at)
			if err != nil {
				continue // the queue is full
			}
			if slot := &held[i%len(held)]; *slot != nil {
				_ = (*slot).Close() // nothing was sent
			}
			held[i%len(held)] = c
			i++
		}
	}
	addr := serve(t)[0]
	flood := exec.Command("/proc/self/exe", "-test.run=^TestFloodOfSilentConnections$")
	flood.Env = append(os.Environ(), role+"="+addr.Name)
	flood.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = flood.Process.Kill(), flood.Wait() }() // nothing else ends it
	time.Sleep(200 * time.Millisecond)
	for i := range 10 {
		var r *rank
		for r == nil {
			conn, err := net.DialUnix("unix", nil, addr)
			if err != nil {
				time.Sleep(time.Millisecond) // the queue is full: a blocking connect waits
				continue
			}
			r = &rank{t, conn, bufio.NewReader(conn)}
		}
		if i%2 == 0 {
			r.send("cmd=outrigger_rank rank=0")
		} else {
			r.send("cmd=initack pmiid=0")
		}
		if line := r.hear(); !strings.Contains(line, "rc=0") {
			t.Errorf("try %d: %q", i, line)
		}
		_ = r.conn.Close()                // the next one may be the rank
		time.Sleep(10 * time.Millisecond) // until the server has noticed
	}
}
