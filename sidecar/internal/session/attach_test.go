package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
)

// TestAttach maps the memory that the server passes and sends a descriptor each way.
func TestAttach(t *testing.T) {
	b := serve(t)
	c := b.dial(t)
	w, fds := c.say((&shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll | 1<<40, Rank: 5, ArenaBytes: 12345}).Encode())
	want := shm.Welcome{
		ABI: shm.ABIVersion, Features: shm.FeaturesAll &^ shm.FeatureExpose, Accepted: true, Rank: 5, Ranks: 16, Pod: 1, Pods: 4,
		SegmentBytes: uint64(b.cfg.Geometry.Bytes()), ArenaBytes: 16384, EagerBytes: 512,
	}
	if diff := cmp.Diff(want, w); diff != "" || len(fds) != 3 {
		t.Fatalf("%d descriptors, welcome (-want +got):\n%s", len(fds), diff)
	}
	mem, err := segment.Open(fds[0], int(w.SegmentBytes))
	if err != nil {
		t.Fatal(err)
	}
	arena, err := segment.Open(fds[1], int(w.ArenaBytes))
	if err != nil {
		t.Fatal(err)
	}
	control, err := segment.Read(mem)
	if err != nil {
		t.Fatal(err)
	}
	s := b.host.session(5)
	arena[100] = 42
	if s.Arena()[100] != 42 {
		t.Error("the arena is not shared")
	}
	sent, got := shm.Descriptor{Op: shm.OpSend, Req: 7, Tag: 9}, shm.Descriptor{}
	push(t, control, &sent)
	if !s.Next(&got) || got != sent {
		t.Errorf("the sidecar got %+v, want %+v", got, sent)
	}
	if err := errors.Join(segment.Unmap(mem), segment.Unmap(arena), c.Close()); err != nil {
		t.Fatal(err)
	}
	b.host.waitGone(1)
}

func push(t *testing.T, control *segment.Control, d *shm.Descriptor) {
	t.Helper()
	mem, n := control.SubmitRing()
	p, err := ring.NewProducer(mem, n)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Push(d); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// TestRefusals checks that a wrong Hello is refused with the reason, and takes no memory.
func TestRefusals(t *testing.T) {
	b := serve(t)
	change := func(f func(*shm.Hello)) []byte {
		h := hello(4)
		f(h)
		return h.Encode()
	}
	for what, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"garbage":         {slices.Repeat([]byte{0xa5}, shm.HelloBytes), "no hello"},
		"short":           {hello(4).Encode()[:20], "20 bytes that are no hello"},
		"one byte":        {[]byte{1}, "1 bytes that are no hello"},
		"long":            {append(hello(4).Encode(), 0), "no hello"},
		"very long":       {make([]byte, 4096), "no hello"},
		"layout version":  {change(func(h *shm.Hello) { h.ABI = 99 }), "layout version 99, this sidecar version 1"},
		"no features":     {change(func(h *shm.Hello) { h.Features = 0 }), "lacks required features"},
		"only unknown":    {change(func(h *shm.Hello) { h.Features = 1 << 63 }), "lacks required features"},
		"rank below":      {hello(3).Encode(), "rank 3 is not hosted here: this sidecar has ranks 4 to 7"},
		"rank above":      {hello(8).Encode(), "rank 8 is not hosted here"},
		"rank far off":    {hello(^uint32(0)).Encode(), "rank 4294967295 is not hosted here"},
		"arena over all":  {change(func(h *shm.Hello) { h.ArenaBytes = 1 << 60 }), "arena of 1048576 TiB wanted, this sidecar grants at most 16 TiB a rank"},
		"arena all bits":  {change(func(h *shm.Hello) { h.ArenaBytes = ^uint64(0) }), "arena of 16777216 TiB wanted"},
		"arena too large": {change(func(h *shm.Hello) { h.ArenaBytes, h.Features = 1<<43, h.Features&^shm.FeaturePieces }), "not enough memory: 8.1 TiB wanted"},
	} {
		t.Run(what, func(t *testing.T) { b.dial(t).refused(c.raw, c.want) })
	}
	b.host.refuse = errors.New("the engine says no")
	b.dial(t).refused(hello(4).Encode(), "the engine says no")
	b.host.refuse = nil
	// No refused client holds the rank.
	if w, _ := b.dial(t).say(hello(4).Encode()); !w.Accepted {
		t.Errorf("after the refusals: %q", w.Text)
	}
}

func TestRankTakenTwice(t *testing.T) {
	b := serve(t)
	first := b.dial(t)
	if w, _ := first.say(hello(6).Encode()); !w.Accepted {
		t.Fatal(w.Text)
	}
	b.dial(t).refused(hello(6).Encode(), "rank 6 is attached already")
	if s := b.host.session(6); s == nil {
		t.Error("the first one lost its session")
	}
	_ = first.Close()
	b.host.waitGone(1)
}

// TestIdleUsers checks that connections that are held open, by users that may attach and by
// others, do not keep a rank from attaching. No connection ends by a deadline here.
func TestIdleUsers(t *testing.T) {
	users := []int{os.Geteuid()}
	if users[0] == 0 { // otherwise there is no other user
		users = append(users, 65534)
	}
	for _, uid := range users {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			b := serve(t, func(c *Config) { c.HelloTimeout = time.Hour })
			if err := os.Chmod(filepath.Dir(b.path), 0o755); err != nil { //nolint:gosec // the point
				t.Fatal(err)
			}
			for range 600 {
				if uid == os.Geteuid() {
					b.dial(t)
				} else {
					b.dialAs(t, uid)
				}
			}
			if w, _ := b.dial(t).say(hello(4).Encode()); !w.Accepted {
				t.Error(w.Text)
			}
		})
	}
}

// TestSilentClient checks that a client that sends nothing is refused with the reason.
func TestSilentClient(t *testing.T) {
	b := serve(t, func(c *Config) { c.HelloTimeout, c.Pending = 50*time.Millisecond, 2 })
	var silent []*client
	for range 5 {
		silent = append(silent, b.dial(t))
	}
	if w, _ := b.dial(t).say(hello(4).Encode()); !w.Accepted {
		t.Error(w.Text)
	}
	for _, c := range silent {
		if w, _ := c.answer(); w.Accepted || w.Text == "" {
			t.Errorf("a silent client got %+v", w)
		}
	}
	if !b.log.has("no hello") {
		t.Errorf("the log does not say why:\n%s", b.log.b.String())
	}
}

// TestDeadClients: a client may die at any step; its rank's session ends, and nothing is
// left (serve checks).
func TestDeadClients(t *testing.T) {
	b := serve(t)
	for what, die := range map[string]func(c *client){
		"before hello":   func(*client) {},
		"during hello":   func(c *client) { _, _ = c.Write([]byte("RHU")) },
		"before welcome": func(c *client) { _, _ = c.Write(hello(4).Encode()) },
		"after welcome":  func(c *client) { c.say(hello(5).Encode()) },
		"after a word": func(c *client) {
			c.say(hello(6).Encode())
			_, _ = c.Write([]byte("hello?"))
		},
	} {
		c := b.dial(t)
		die(c)
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.host.waitGone(2)
	wait(t, "all connections to end", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.conns) == 0 && len(b.ranks) == 0
	})
}

// TestManyAttaches: a thousand clients attach and leave, four at a time, and leave no
// descriptor and no mapping.
func TestManyAttaches(t *testing.T) {
	b := serve(t)
	before := mappings(t)
	var clients sync.WaitGroup
	for rank := uint32(4); rank < 8; rank++ {
		clients.Go(func() {
			for range 250 {
				c := b.dial(t)
				for {
					w, fds := c.say(hello(rank).Encode())
					closeAll(fds)
					_ = c.Close()
					if w.Accepted {
						break
					}
					c = b.dial(t) // the previous client has not quite gone
				}
			}
		})
	}
	clients.Wait()
	b.host.waitGone(1000)
	if after := mappings(t); after > before {
		t.Errorf("%d mapped segments after the attaches, %d before", after, before)
	}
}

// TestHangUp checks that an expelled client learns of it by its socket.
func TestHangUp(t *testing.T) {
	b := serve(t)
	c := b.dial(t)
	c.say(hello(4).Encode())
	b.host.session(4).HangUp()
	var buf [1]byte
	if n, err := c.Read(buf[:]); n != 0 || err == nil {
		t.Errorf("%d bytes, %v; want the end", n, err)
	}
	b.host.waitGone(1)
}

// TestWordAfterTheHandshake checks that a client that writes to its socket is expelled,
// that it can read the reason, and that its connection is closed.
func TestWordAfterTheHandshake(t *testing.T) {
	b := serve(t)
	c := b.dial(t)
	_, fds := c.say(hello(4).Encode())
	mem, err := segment.Open(fds[0], b.cfg.Geometry.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = segment.Unmap(mem) }() // not needed after the test
	control, err := segment.Read(mem)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Write([]byte("anybody there?")); err != nil && !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
	}
	var buf [1]byte
	if n, err := c.Read(buf[:]); n != 0 || err == nil {
		t.Errorf("%d bytes, %v; want the end", n, err)
	}
	b.host.waitGone(1)
	if text := control.Failure(); text != "rank 4: bytes on its socket after the handshake" || len(b.host.expelled) != 1 {
		t.Errorf("it is told %q, and was expelled for %v", text, b.host.expelled)
	}
}

// TestCloseDuringHandshakes checks that Close does not wait for clients, and that no
// goroutine outlives it (TestMain checks).
func TestCloseDuringHandshakes(t *testing.T) {
	b := serve(t, func(c *Config) { c.HelloTimeout, c.Pending = time.Hour, 1 })
	for range 4 {
		b.dial(t)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsSessions(t *testing.T) {
	b := serve(t)
	b.dial(t).say(hello(4).Encode())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.host.waitGone(1)
}

// TestNoDescriptors checks that a sidecar without a free descriptor goes on, and that
// waiting clients attach when there are descriptors again.
func TestNoDescriptors(t *testing.T) {
	b := serve(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }() // restored; checked below
	none := limit
	none.Cur = 3 // all numbers above are in use or forbidden
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: b.path})
	if err == nil {
		wait(t, "a word about the limit", func() bool { return b.log.has("raise the limit of open files") })
	}
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	if w, _ := b.dial(t).say(hello(4).Encode()); !w.Accepted {
		t.Errorf("with descriptors again: %q", w.Text)
	}
}

// TestNoDescriptorForMemory checks that a rank whose memory cannot be created, because
// descriptors are missing, is refused, and that the sidecar and the other ranks go on.
func TestNoDescriptorForMemory(t *testing.T) {
	b := serve(t)
	h := hello(4)
	_, _, err := func() (*Session, *material, error) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }() // restored
		b.memory = newReservations(0, 0, func() ([]pool, error) { return []pool{{limit: 1 << 30, where: "in the test"}}, nil })
		none := limit
		none.Cur = 0
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
			t.Fatal(err)
		}
		return b.build(h)
	}()
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "rank 4: ") || !strings.Contains(err.Error(), "raise the limit of open files (ulimit -n)") {
		t.Errorf("got %v, want the rank, no descriptor left, and what to do", err)
	}
	if w, fds := b.dial(t).say(h.Encode()); !w.Accepted || len(fds) != 3 {
		t.Errorf("with descriptors again: %q", w.Text)
	}
}

func TestWhoMayAttach(t *testing.T) {
	c := Config{UIDs: []uint32{1000}}
	for uid, ok := range map[uint32]bool{0: true, 500: true, 1000: true, 501: false, ^uint32(0): false} {
		err := c.checkUser(uid, 500)
		if (err == nil) != ok {
			t.Errorf("user %d at a sidecar of user 500: %v", uid, err)
		}
		if err != nil && !strings.Contains(err.Error(), "--app-uid") {
			t.Errorf("%q does not say what to do", err)
		}
	}
}

func TestEverybodyMayAttach(t *testing.T) {
	c := Config{AnyUID: true}
	for _, uid := range []uint32{0, 500, 501, ^uint32(0)} {
		if err := c.checkUser(uid, 500); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// TestRefusal checks that a server that refuses all clients sends the reason, and takes no
// memory.
func TestRefusal(t *testing.T) {
	b := serve(t, func(c *Config) { c.Refusal = errors.New("no longer with us") })
	for range 3 {
		b.dial(t).refused(hello(4).Encode(), "no longer with us")
	}
}

// TestAnotherUser connects as other users, which only root can: other users may not attach,
// except the configured one.
func TestAnotherUser(t *testing.T) {
	const refused, allowed = 65534, 12345
	b := serve(t, func(c *Config) { c.UIDs = []uint32{allowed} })
	if err := os.Chmod(filepath.Dir(b.path), 0o755); err != nil { //nolint:gosec // the point
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		if w, _ := b.dial(t).say(hello(4).Encode()); !w.Accepted {
			t.Error(w.Text)
		}
		return
	}
	b.dialAs(t, refused).refused(hello(4).Encode(), "user 65534 may not attach to this sidecar, which runs as user 0")
	if w, _ := b.dialAs(t, allowed).say(hello(4).Encode()); !w.Accepted {
		t.Error(w.Text)
	}
}

// dialAs connects with another effective user. The raw system call changes it for this
// thread alone, which runs no other goroutine meanwhile.
func (b *bench) dialAs(t *testing.T, uid int) *client {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := func(uid int) {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			t.Fatal(e)
		}
	}
	set(uid)
	defer set(0)
	return b.dial(t)
}
