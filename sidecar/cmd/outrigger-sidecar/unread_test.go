package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// TestUnreadWelcomeIsNoAttachment: a rank that has given up with its Welcome unread has not
// attached: the launcher, which asks when its process has ended, judges the program by that. A
// rank that had a session before has.
func TestUnreadWelcomeIsNoAttachment(t *testing.T) {
	a := startAway(t, false)
	a.come()
	a.ask(t, "/healthz")
	for _, before := range []int{0, 0, 1} {
		if before > 0 {
			s, err := outrigger.Open(t.Context(), outrigger.Config{Socket: a.o.socket})
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		leaveWelcome(t, a.o.socket)
		c, err := net.Dial("unix", a.o.socket+names.PMISuffix)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // all is said
		if _, err := fmt.Fprintln(c, "cmd=outrigger_rank rank=0"); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if want := fmt.Sprintf("attached=%d vanished=0", before); err != nil || !strings.Contains(line, want) {
			t.Errorf("%q, %v; want %s", line, err, want)
		}
	}
}

// leaveWelcome asks for a session of rank 0, and leaves when the answer is there.
func leaveWelcome(t *testing.T, socket string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // with the answer unread
	h := shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, h.Encode()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; {
		if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		n = max(n, 0)
	}
}
