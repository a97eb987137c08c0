package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNotANamespace: descriptors that are no network namespace of a pod are refused, and the
// error says which one is wanted.
func TestNotANamespace(t *testing.T) {
	p, err := NewPacketSockets("/proc")
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string, flags int) *os.File {
		t.Helper()
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), name)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	// A file system may have a file of any name.
	odd := filepath.Join(t.TempDir(), "net:[1]")
	if err := os.WriteFile(odd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.MemfdCreate("net:[1]", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	const not, owns = "is not a network namespace", "the agent's own"
	for what, c := range map[string]struct {
		f     *os.File
		cause string
	}{
		"file":              {open(odd, unix.O_RDONLY), not},
		"memory":            {os.NewFile(uintptr(memory), "memory"), not},
		"directory":         {open("/proc/self/ns", unix.O_RDONLY), not},
		"device":            {open("/dev/null", unix.O_RDWR), not},
		"pid namespace":     {open("/proc/self/ns/pid", unix.O_RDONLY), not},
		"mount namespace":   {open("/proc/self/ns/mnt", unix.O_RDONLY), not},
		"path only":         {open("/proc/self/ns/net", unix.O_PATH), "opened for reading"},
		"the agent's own":   {open("/proc/self/ns/net", unix.O_RDONLY), owns},
		"the link to it":    {open("/proc/self/ns/net", unix.O_PATH|unix.O_NOFOLLOW), not},
		"socket's own":      {open("/proc/thread-self/net", unix.O_RDONLY), not},
		"the main thread's": {open(fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), unix.O_RDONLY), owns},
	} {
		_, err := p.Make(t.Context(), SocketRequest{Namespace: c.f, PID: os.Getpid()})
		if err == nil || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%s: %v, want %q", what, err, c.cause)
		}
	}
}

// TestHasSocket: a socket is found by its inode, in the table of the process alone.
func TestHasSocket(t *testing.T) {
	proc := t.TempDir()
	for pid, lines := range map[int]string{
		1: "0000000000000000 3      2    88b5   4     1 0      0      4711",
		7: "0000000000000000 3      3    0003   2     1 0      0      123\n0000000000000000 3      2    0000   0     0 0      4711      4712\n",
		8: "",
	} {
		dir := filepath.Join(proc, fmt.Sprint(pid), "net")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n" + lines
		if err := os.WriteFile(filepath.Join(dir, "packet"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		pid   int
		inode uint64
		want  bool
	}{{1, 4711, true}, {7, 4711, false}, {7, 4712, true}, {7, 123, true}, {7, 12, false}, {8, 123, false}} {
		if got, err := hasSocket(proc, c.pid, c.inode); err != nil || got != c.want {
			t.Errorf("process %d, socket %d: %v, %v", c.pid, c.inode, got, err)
		}
	}
	if _, err := hasSocket(proc, 9, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that has gone: %v", err)
	}
}

// TestDefaultRoutes: default routes are recognised in the tables of the kernel.
func TestDefaultRoutes(t *testing.T) {
	for line, want := range map[string]string{
		"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT": "",
		"eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0":                        "eth0 100",
		"eth0\t00000000\t0101A8C0\t0002\t0\t0\t100\t00000000\t0\t0\t0":                        "",
		"*\t00000000\t00000000\t0201\t0\t0\t100\t00000000\t0\t0\t0":                           "",
		"eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0":                          "",
		"eth0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0":                          "", // 0.0.0.0/1
		"": "",
	} {
		if got := routeText(default4(strings.Fields(line))); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	const zero = "00000000000000000000000000000000"
	for line, want := range map[string]string{
		zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0": "eth0 1024",
		zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo":                     "",
		zero + " 00 " + zero + " 00 " + zero + " 00000400 00000001 00000000 00200201     eth0":                     "",
		"fe80" + zero[4:] + " 40 " + zero + " 00 " + zero + " 00000100 00000001 00000000 00000001     eth0":        "",
		zero + " 01 " + zero + " 00 " + zero + " 00000400 00000001 00000000 00000001     eth0":                     "",
		"": "",
	} {
		if got := routeText(default6(strings.Fields(line))); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func routeText(dev string, metric uint64, ok bool) string {
	if !ok {
		return ""
	}
	return fmt.Sprint(dev, " ", metric)
}

// TestSocketProblems: an agent that lacks a capability knows which one.
func TestSocketProblems(t *testing.T) {
	result := make(chan []string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread without capabilities ends with its goroutine
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			result <- []string{err.Error()}
			return
		}
		result <- SocketProblems()
	}()
	const want = "the agent has no CAP_SYS_ADMIN and no CAP_NET_RAW (devicePlugin.grant.rawEthernet of the chart)"
	if got := <-result; len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBusy: a request does not wait longer than its context while other threads make sockets.
func TestBusy(t *testing.T) {
	p, err := NewPacketSockets("/proc")
	if err != nil {
		t.Fatal(err)
	}
	p.own = identity{} // so that the test's namespace is not refused
	for range makingMax {
		p.making <- struct{}{}
	}
	f, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Make(ctx, SocketRequest{Namespace: f, PID: os.Getpid()}); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("%v", err)
	}
}

// TestOnOwnThread: the thread is another one each time, and never the main one.
func TestOnOwnThread(t *testing.T) {
	for range 100 {
		thread := make(chan int)
		onOwnThread(func() { thread <- unix.Gettid() })
		if <-thread == os.Getpid() {
			t.Fatal("the main thread was used")
		}
	}
}
