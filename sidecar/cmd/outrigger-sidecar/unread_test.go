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

// TestUnreadWelcomeIsNoAttachment: a rank that ended without reading its Welcome has not
// attached, and a rank that had a session before has. The launcher asks for this when the
// process has ended, and judges the program by it.
func TestUnreadWelcomeIsNoAttachment(t *testing.T) {
	a := startWaiting(t, false)
	a.startIssuer()
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
		defer func() { _ = c.Close() }() // all is sent
		if _, err := fmt.Fprintln(c, "cmd=outrigger_rank rank=0"); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if want := fmt.Sprintf("attached=%d vanished=0", before); err != nil || !strings.Contains(line, want) {
			t.Errorf("%q, %v; want %s", line, err, want)
		}
	}
}

// leaveWelcome requests a session of rank 0, and closes the connection when the answer has
// arrived.
func leaveWelcome(t *testing.T, socket string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // the answer is unread
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
