package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// floods connects without end and sends nothing, if this process was started for that. It
// holds as many connections as it may.
func floods(t *testing.T) {
	at := os.Getenv("OUTRIGGER_TEST_FLOOD")
	if at == "" {
		return
	}
	var held [512]int
	for i := range held {
		held[i] = -1
	}
	to := &unix.SockaddrUnix{Name: at}
	for i := 0; ; {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		if unix.Connect(fd, to) != nil {
			_ = unix.Close(fd)
			continue
		}
		slot := &held[i%len(held)]
		if *slot >= 0 {
			_ = unix.Close(*slot)
		}
		*slot = fd
		i++
	}
}

// TestFloodOfConnects checks that a rank attaches while a process connects without end and
// sends nothing: as its own user, as another one that may attach, and as one that may not.
func TestFloodOfConnects(t *testing.T) {
	floods(t)
	uids := []int{os.Geteuid()}
	if uids[0] == 0 { // otherwise there is no other user
		uids = append(uids, 1234, 4321)
	}
	for _, uid := range uids {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			b := serve(t, func(c *Config) { c.UIDs = []uint32{1234} })
			if err := os.Chmod(filepath.Dir(b.path), 0o755); err != nil { //nolint:gosec // the point
				t.Fatal(err)
			}
			c := exec.Command("/proc/self/exe", "-test.run=^TestFloodOfConnects$")
			c.Env = append(os.Environ(), "OUTRIGGER_TEST_FLOOD="+b.path)
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
			if uid != os.Geteuid() {
				c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = c.Process.Kill(), c.Wait() }() // nothing else ends it
			wait(t, "the flood", func() bool { return b.limiter.Len()+b.refused.Len() >= refusedMax })
			for range 3 {
				w, fds := b.dialBusy(t).say(hello(4).Encode())
				closeAll(fds)
				if w.Accepted {
					return
				}
				t.Log(w.Text) // refused: the client is told so, and a rank may try again
			}
			t.Error("no try of a rank was accepted")
		})
	}
}

// TestConnectsBeforeTheServer checks that a process that has filled the socket's queue
// before the sidecar is ready keeps no rank out then, whether the process still exists or
// not.
func TestConnectsBeforeTheServer(t *testing.T) {
	for _, stays := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := Bind(path)
		if err != nil {
			t.Fatal(err)
		}
		var list []net.Conn
		for len(list) < 10_000 {
			c, err := net.Dial("unixpacket", path)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if list = append(list, c); !stays {
				_ = c.Close() // and stays in the queue
			}
		}
		b := &bench{host: &host{attached: map[uint32]*Session{}, t: t}, log: new(journal), path: path}
		b.Server = NewServer(l, Config{
			Ranks: 16, Pods: 4, First: 4, Count: 4, ArenaBytes: 1 << 20, ArenaMax: 1 << 44,
			Geometry: segment.Geometry{SubmitEntries: 64, CompleteEntries: 64, SlabBytes: 1 << 16}, EagerBytes: 512,
			Log: slog.New(slog.NewTextHandler(b.log, nil)),
		}, b.host)
		served := make(chan error, 1)
		go func() { served <- b.Serve(t.Context()) }()
		c := b.dialBusy(t)
		if w, _ := c.say(hello(4).Encode()); !w.Accepted {
			t.Error(w.Text)
		}
		_ = c.Close() // its rank is attached
		if err := errors.Join(b.Close(), <-served); err != nil {
			t.Error(err)
		}
		for _, c := range list {
			_ = c.Close() // most are closed
		}
	}
}

// dialBusy connects as clients do: it tries again while the queue is full.
func (b *bench) dialBusy(t *testing.T) (c *client) {
	t.Helper()
	wait(t, "a place in the queue", func() bool {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.path, Net: "unixpacket"})
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		c = &client{conn, t}
		return true
	})
	t.Cleanup(func() { _ = c.Close() }) // most tests have
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return c
}
