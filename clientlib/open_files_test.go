package outrigger

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// welcome answers a client over a socket of its own, with n descriptors.
func welcome(t *testing.T, n int) *net.UnixConn {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for range n {
		fds = append(fds, int(os.Stdin.Fd()))
	}
	w := shm.Welcome{ABI: shm.ABIVersion, Accepted: true, Ranks: 1, Pods: 1}
	if err := unix.Sendmsg(ends[1], w.Encode(), unix.UnixRights(fds...), nil, 0); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(ends[0]), "client")
	defer func() { _ = f.Close() }() // the connection has its own descriptor
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), unix.Close(ends[1]) }) // the test has ended
	return c.(*net.UnixConn)
}

// TestDescriptorsThatFindNoRoom: the error names the limit of open files, as that of the C
// client does.
func TestDescriptorsThatFindNoRoom(t *testing.T) {
	conn := welcome(t, 3)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(free) // free is now the lowest free number
	few := unix.Rlimit{Cur: uint64(free), Max: old.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = attach(context.Background(), conn, &Config{})
	if back := unix.Prlimit(0, unix.RLIMIT_NOFILE, &old, nil); back != nil {
		t.Fatal(back)
	}
	const want = "0 of the sidecar's 3 descriptors could be taken: this process may open no more files; raise its limit (ulimit -n)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestDescriptorsOfAWrongNumber: a sidecar that passes another number of descriptors is an
// error.
func TestDescriptorsOfAWrongNumber(t *testing.T) {
	for n, want := range map[int]string{1: "the sidecar passed 1 descriptors, want 3", 4: "the sidecar passed 4 descriptors, want 3"} {
		if _, _, err := attach(context.Background(), welcome(t, n), &Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
