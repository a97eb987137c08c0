package session

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestClientGivesUp checks that a client that leaves while it waits for its Welcome does
// not count as a rank that vanished, and does not claim the rank until the rank may attach.
func TestClientGivesUp(t *testing.T) {
	b := serve(t)
	b.host.later = map[*Session]chan error{}
	for range 20 {
		c := b.dial(t)
		if _, err := c.Write(hello(6).Encode()); err != nil {
			t.Fatal(err)
		}
		wait(t, "the client to wait", func() bool { return b.host.waiting() == 1 })
		_ = c.Close()
		wait(t, "the end of its wait", func() bool { return b.host.waiting() == 0 })
	}
	b.host.mu.Lock()
	b.host.later = nil
	b.host.mu.Unlock()
	c := b.dial(t)
	if w, _ := c.say(hello(6).Encode()); !w.Accepted {
		t.Error(w.Text)
	}
	_ = c.Close()
	b.host.waitGone(1)
	if b.host.gone != 1 {
		t.Errorf("%d sessions have ended, want the last one alone", b.host.gone)
	}
}

// TestWelcomeUnread checks that the host is told whether the client of a session that is
// gone has read its Welcome.
func TestWelcomeUnread(t *testing.T) {
	b := serve(t)
	for i, reads := range []bool{false, true, false} {
		c := b.dial(t)
		if _, err := c.Write(hello(6).Encode()); err != nil {
			t.Fatal(err)
		}
		var sess *Session
		wait(t, "the session", func() bool { sess = b.host.session(6); return sess != nil })
		if reads {
			if _, err := c.Read(make([]byte, shm.WelcomeBytes)); err != nil {
				t.Fatal(err)
			}
		} else if err := readable(c.UnixConn); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		b.host.waitGone(i + 1)
		if sess.Unopened() == reads {
			t.Errorf("client %d: reads its Welcome: %v, unopened: %v", i, reads, sess.Unopened())
		}
	}
}

// TestForgotten checks that a rank whose only attachments were undone has never attached,
// that memory is reserved for it as before, and that a rank that had attached before them
// has attached.
func TestForgotten(t *testing.T) {
	b := serve(t)
	coming := func() uint64 {
		b.memory.mu.Lock()
		defer b.memory.mu.Unlock()
		return b.memory.coming
	}
	before := coming()
	for i, reads := range []bool{false, false, true, false} {
		c := b.dial(t)
		if _, err := c.Write(hello(6).Encode()); err != nil {
			t.Fatal(err)
		}
		var sess *Session
		wait(t, "the session", func() bool { sess = b.host.session(6); return sess != nil })
		if !reads {
			if err := readable(c.UnixConn); err != nil {
				t.Fatal(err)
			}
		} else if _, err := c.Read(make([]byte, shm.WelcomeBytes)); err != nil {
			t.Fatal(err)
		}
		if !b.Attached(6) {
			t.Errorf("client %d has not attached", i)
		}
		_ = c.Close()
		b.host.waitGone(i + 1)
		if sess.Unopened() {
			sess.Forget() // as the engine does
		}
		if want := i >= 2; b.Attached(6) != want || !want && coming() != before || want && coming() >= before {
			t.Errorf("after client %d: attached %v, want %v; %d bytes are kept for ranks that come, at first %d", i, b.Attached(6), want, coming(), before)
		}
	}
}

// readable waits until c can be read.
func readable(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil
	})
}

// TestClaimsAreBounded checks that clients that send a rank's number and leave do not fill
// the sidecar with connections that wait for the rank's claim.
func TestClaimsAreBounded(t *testing.T) {
	b := serve(t)
	old := b.dial(t)
	_ = old.Close()
	over := make(chan struct{})
	b.mu.Lock()
	b.ranks[6] = &claim{conn: old.UnixConn, over: over} // the client has hung up, and the end of its claim takes long
	b.mu.Unlock()
	var clients []*client
	for range 5 * claimsMax {
		c := b.dial(t)
		if _, err := c.Write(hello(6).Encode()); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	wait(t, "all to be told but those that may wait", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.conns) == claimsMax && b.claiming[6] == claimsMax
	})
	b.mu.Lock()
	delete(b.ranks, 6)
	close(over)
	b.mu.Unlock()
	accepted := 0
	for _, c := range clients {
		if w, _ := c.answer(); w.Accepted {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d clients were attached as one rank", accepted)
	}
}

// TestAttachAgain checks that the next program of a rank attaches although the server has
// not noticed the end of the previous one.
func TestAttachAgain(t *testing.T) {
	b := serve(t)
	for range 50 {
		c := b.dial(t)
		if w, _ := c.say(hello(6).Encode()); !w.Accepted {
			t.Fatal(w.Text)
		}
		_ = c.Close()
	}
	b.host.waitGone(50)
}

// TestAttachAgainWithAChild: a process that the previous program has started may keep its
// socket open. If the program has detached, the connection is ended for the next one.
func TestAttachAgainWithAChild(t *testing.T) {
	b := serve(t)
	first := b.dial(t)
	if w, _ := first.say(hello(6).Encode()); !w.Accepted {
		t.Fatal(w.Text)
	}
	b.dial(t).refused(hello(6).Encode(), "rank 6 is attached already")
	b.host.session(6).Over()
	second := b.dial(t)
	if w, _ := second.say(hello(6).Encode()); !w.Accepted {
		t.Errorf("with an open socket of a program that has said goodbye: %s", w.Text)
	}
	b.host.waitGone(1)
	_ = second.Close()
	b.host.waitGone(2)
}
