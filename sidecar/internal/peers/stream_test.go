package peers

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func encrypted(c *Config) { c.Encrypt = true }

// pairOf connects two pods.
func pairOf(t *testing.T, change ...func(*Config)) []*node {
	t.Helper()
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, change...)
	n[0].Connect(1)
	n[0].waitConnected(1, 1)
	n[1].waitConnected(0, 1)
	return n
}

// TestEncryptedConnect checks that either side may ask, and break and connect again.
func TestEncryptedConnect(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, encrypted)
	for i := 1; i <= 6; i++ {
		n[i%2].Connect(n[1-i%2].cfg.Self)
		n[0].waitConnected(1, i)
		n[1].waitConnected(0, i)
		bothWays(t, n[0], n[1])
		if err := unix.Shutdown(n[i%2].newest(n[1-i%2].cfg.Self), unix.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		wait(t, "the streams to end", func() bool { return n[0].carrying() == 0 && n[1].carrying() == 0 && n[0].quiet() && n[1].quiet() })
	}
}

func (n *node) carrying() int {
	n.Mesh.mu.Lock()
	defer n.Mesh.mu.Unlock()
	return len(n.streams)
}

// tap is a network between two pods that records all bytes.
type tap struct {
	net.Listener
	to   string
	mu   sync.Mutex
	seen bytes.Buffer
	all  sync.WaitGroup
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

func (p *tap) has(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.seen.Bytes(), b)
}

func (p *tap) serve() {
	for {
		a, err := p.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = a.Close() // as if no process listened
			continue
		}
		for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
			p.all.Go(func() {
				_, _ = io.Copy(io.MultiWriter(way[0], p), way[1]) // until one side closes
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}

// TestNoPlaintextOnTheWire checks that the bytes that the engine writes are on the wire
// only if data is not encrypted.
func TestNoPlaintextOnTheWire(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := &tap{Listener: l}
		n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, func(c *Config) {
			c.Encrypt = encrypt
			if c.Self == 0 {
				p.to = c.Addresses[1]
				c.Addresses = []string{c.Addresses[0], l.Addr().String()}
			}
		})
		p.all.Go(p.serve)
		n[0].Connect(1)
		n[0].waitConnected(1, 1)
		n[1].waitConnected(0, 1)
		secret := []byte("the plans of the secret weapon")
		if !talk(t, n[0].newest(1), n[1].newest(0), string(secret)) || !talk(t, n[1].newest(0), n[0].newest(1), string(secret)) {
			t.Error("not connected")
		}
		if p.has(secret) == encrypt {
			t.Errorf("encrypted %v: plaintext on the wire: %v", encrypt, p.has(secret))
		}
		for _, x := range n {
			x.end()
			x.served <- nil // for the cleanup
		}
		_ = l.Close() // all connections have ended
		p.all.Wait()
	}
}

// TestFullBothWays checks that if both sides write more than all buffers hold, at the
// same time, everything arrives unchanged.
func TestFullBothWays(t *testing.T) {
	n := pairOf(t, encrypted)
	a, b := n[0].newest(1), n[1].newest(0)
	const size = 16 << 20
	var all sync.WaitGroup
	for i, way := range [][2]int{{a, b}, {b, a}} {
		sent := make([]byte, size)
		fill := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = fill.Read(sent) // never fails
		all.Go(func() {
			if err := writeAll(way[0], sent); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if got := readAll(t, way[1], size); !bytes.Equal(got, sent) {
				t.Errorf("%d bytes arrived changed", len(got))
			}
		})
	}
	all.Wait()
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN):
			ready(fd, unix.POLLOUT)
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

// readAll reads n bytes, or to the end if n is negative.
func readAll(t *testing.T, fd, n int) []byte {
	var got []byte
	b := make([]byte, 1<<16)
	for len(got) != n {
		k, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN):
			ready(fd, unix.POLLIN)
		case err != nil:
			t.Error(err)
			return got
		case k == 0:
			return got
		default:
			got = append(got, b[:k]...)
		}
	}
	return got
}

func ready(fd int, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 1000) // the caller checks again
}

// TestLastBytes checks that everything written before the end arrives, although the
// writer closes its side and its mesh at once.
func TestLastBytes(t *testing.T) {
	n := pairOf(t, encrypted)
	words := bytes.Repeat([]byte("goodbye "), 50_000)
	from, to := n[0].newest(1), n[1].newest(0)
	done := make(chan []byte)
	go func() { done <- readAll(t, to, -1) }()
	if err := writeAll(from, words); err != nil {
		t.Fatal(err)
	}
	n[0].end()
	n[0].served <- nil // for the cleanup
	if got := <-done; !bytes.Equal(got, words) {
		t.Errorf("%d of %d bytes arrived", len(got), len(words))
	}
}

// TestStuckReader checks that a peer that does not read does not prevent a mesh from
// ending.
func TestStuckReader(t *testing.T) {
	n := pairOf(t, encrypted)
	from := n[0].newest(1)
	for full := false; !full; { // all buffers between the two
		k, err := unix.Write(from, make([]byte, 1<<16))
		full = k <= 0 && errors.Is(err, unix.EAGAIN)
		if full {
			p := []unix.PollFd{{Fd: int32(from), Events: unix.POLLOUT}}
			k, _ := unix.Poll(p, 300) // an error counts as no room
			full = k == 0
		}
	}
	n[0].end()
	n[0].served <- nil // for the cleanup
	if got := n[0].carrying(); got != 0 {
		t.Errorf("%d streams are left", got)
	}
}

// TestUnreadStreamEnds checks that the connection to a peer that does not read ends by itself, and
// that the log names the peer.
func TestUnreadStreamEnds(t *testing.T) {
	n := pairOf(t, encrypted, func(c *Config) {
		if c.Self == 0 {
			c.Unread = 50 * time.Millisecond
		}
	})
	from := n[0].newest(1)
	wait(t, "the stream to end", func() bool {
		_, _ = unix.Write(from, make([]byte, 1<<16)) // fails if all buffers are full, and after the end
		return n[0].carrying() == 0
	})
	if want := "the peer has not read for too long"; !n[0].log.has(want) || !n[0].log.has("peer=1") {
		t.Errorf("the log has no %q of peer 1:\n%s", want, n[0].log)
	}
}

// TestRekey checks that a connection ends when its key has encrypted enough, and that the
// next one has a new key.
func TestRekey(t *testing.T) {
	n := pairOf(t, encrypted, func(c *Config) { c.RekeyBytes = 1 << 20 })
	written := make(chan error, 1)
	go func() { written <- writeAll(n[0].newest(1), make([]byte, 1<<20)) }()
	if got := readAll(t, n[1].newest(0), -1); len(got) < 1<<20 || len(got) > 1<<20+pumpBytes {
		t.Errorf("%d bytes arrived with one key, want %d", len(got), 1<<20)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	wait(t, "both streams to end", func() bool { return n[0].carrying() == 0 && n[1].carrying() == 0 })
	n[0].Connect(1)
	n[0].waitConnected(1, 2)
	n[1].waitConnected(0, 2)
	bothWays(t, n[0], n[1])
}

// TestHalfEncryptedJob checks that sidecars with different settings report it.
func TestHalfEncryptedJob(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, func(c *Config) { c.Encrypt = c.Self == 1 })
	n[0].Connect(1)
	wait(t, "a log line about it", func() bool { return n[0].log.has("give all sidecars of the job the same document") })
	n[0].Cancel(1)
	if n[0].count(1)+n[1].count(0) != 0 {
		t.Error("a connection was handed over")
	}
}

// TestStreamOfAnotherPod checks that the certificate inside must be that of the pod for
// which the connection was proven.
func TestStreamOfAnotherPod(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(3, []int{0, 2}, encrypted)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // no more connections are made
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		if fd, err := n[1].engineSocket(b, 0, false); err == nil {
			_ = unix.Close(fd) // it accepted pod 0, which is right
		}
		_ = b.Close() // engineSocket has duplicated it
		close(done)
	}()
	if _, err := n[0].engineSocket(a, 1, true); err == nil || !bytes.Contains([]byte(err.Error()), []byte("proven as pod 1, certificate of pod 2")) {
		t.Errorf("%v", err)
	}
	_ = a.Close() // engineSocket has duplicated it
	<-done
	wait(t, "the streams to end", func() bool { return n[0].carrying() == 0 && n[1].carrying() == 0 })
}
