package grant

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// lingering returns a TCP connection with unsent bytes, whose last close waits for a minute.
func lingering(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil { // until the peer, which does not read, has room for no more
		_, err = c.Write(make([]byte, 1<<20))
	}
	if err := unix.SetsockoptLinger(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestLingeringDescriptors: a descriptor whose close waits for its peer keeps no place of the
// agent, whether the agent has read its message or not.
func TestLingeringDescriptors(t *testing.T) {
	for name, messages := range map[string]int{"read": 1, "unread": 4} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.who.expect(sidecar())
			conn, err := net.Dial("unixpacket", r.socket)
			if err != nil {
				t.Fatal(err)
			}
			for range messages {
				f := lingering(t)
				// Without a version the first message ends the connection; others stay unread.
				_ = grant.Send(conn.(*net.UnixConn), &grant.Message{Op: grant.Memlock}, f)
				_ = grant.Drop(f) // the message may have the last one
			}
			_ = conn.Close()
			for limit := time.Now().Add(40 * time.Second); len(r.agent.places) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatal("the connection keeps its place")
				}
			}
		})
	}
}
