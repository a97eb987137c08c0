package ether_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// sink records the events of the Link.
type sink struct {
	frames []*frame
	placed *frame
	downs  []error
}

func (s *sink) Deliver(_ link.Peer, h *wire.Header, payload []byte) error {
	s.frames = append(s.frames, &frame{head: *h, payload: bytes.Clone(payload)})
	return nil
}

func (s *sink) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	s.placed = &frame{head: *h, payload: make([]byte, h.Length)}
	return s.placed.payload, nil
}

func (s *sink) Placed(link.Peer) error {
	s.frames = append(s.frames, s.placed)
	return nil
}

func (s *sink) Done(link.Peer, uint64, error) {}

func (s *sink) Written(link.Peer, uint64) {}

func (s *sink) Delivered(link.Peer, uint64) {}

func (s *sink) Down(_ link.Peer, err error) { s.downs = append(s.downs, err) }

// rig is a Link that is connected with a peer.
type rig struct {
	*peer

	l      *ether.Link
	other  link.Peer // number of the peer
	sink   *sink
	memory *linktest.Memory
	clock  *atomic.Int64
	seq    uint64
	closed atomic.Bool
	forge  func() // called before the first probe; may be nil
}

// mode is how a rig is made.
type mode struct {
	encrypt bool
	higher  bool // the Link has the higher number
	path    int  // largest probe that passes; 0: all
	early   func(*rig)
}

// newRig makes a Link and its peer, and connects them.
func newRig(t testing.TB, m mode) *rig {
	t.Helper()
	r := newUnconnected(t, m)
	r.connect(m.early)
	return r
}

// newUnconnected makes a Link and its peer.
func newUnconnected(t testing.TB, m mode) *rig {
	t.Helper()
	clock := new(atomic.Int64)
	clock.Store(1e9)
	r := &rig{other: 1, sink: &sink{}, memory: linktest.NewMemory(), clock: clock}
	if m.higher {
		r.other = 0
	}
	r.peer = newPeer(t, m.encrypt, m.higher, clock.Load)
	if m.path != 0 {
		r.path = m.path
	}
	sockets, err := tcp.New(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.l, err = ether.New(ether.Config{
		Self: 1 - r.other, Peers: 2, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"},
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(host)}, nil
		},
		Encrypt: m.encrypt, Stream: sockets, Log: slog.New(slog.DiscardHandler), Silence: 10e9, Clock: r.now,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.l.SetMemory(r.memory)
	t.Cleanup(func() {
		if !r.closed.Load() {
			r.close()
		}
	})
	return r
}

// close ends the Link. Its Close waits by the Link's clock, which advances at each look.
func (r *rig) close() {
	r.t.Helper()
	r.closed.Store(true)
	if err := r.l.Close(); err != nil {
		r.t.Error(err)
	}
}

// now returns the time of the Link.
func (r *rig) now() int64 {
	if r.closed.Load() {
		return r.clock.Add(ms / 10)
	}
	return r.clock.Load()
}

// connect makes the connection. The clock of the Link is the machine's meanwhile.
func (r *rig) connect(early func(*rig)) {
	r.t.Helper()
	e := r.l.Prepare(r.other)
	r.meet(e.Offer())
	over := make(chan error, 1)
	go func() { over <- e.Connect(r.offer()) }()
	if r.forge != nil {
		r.forge()
	}
	last := time.Now()
	due := last
	for done := false; !done; {
		select {
		case err := <-over:
			if done = true; err != nil {
				r.t.Fatal(err)
			}
		default:
			now := time.Now()
			r.clock.Add(int64(now.Sub(last)))
			last = now
			if r.peer.link != nil && !now.Before(due) && r.echoes[1232] == 0 {
				due = now.Add(20 * time.Millisecond)
				r.probe(8952, 1452, 1402, 1232)
			}
			r.turn()
			time.Sleep(20 * time.Microsecond) // the goroutine needs a processor
		}
	}
	if early != nil {
		early(r)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.data = pair[0]
	r.t.Cleanup(func() { r.hang() })
	if err := r.l.Join(r.other, pair[1], e); err != nil {
		r.t.Fatal(err)
	}
	r.until("the echoes", func() bool { return r.echoes[1232] > 0 })
	r.settle()
	r.take()
}

// hang closes the data connection.
func (r *rig) hang() {
	if r.data >= 0 {
		_ = unix.Close(r.data)
	}
	r.data = -1
}

// turn polls the Link and serves the peer.
func (r *rig) turn() int {
	r.t.Helper()
	return r.l.Poll(r.sink) + r.peer.turn()
}

// until waits for a condition, without time for the Link.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain for %s: %+v, downs %v", what, r.l.Stats(), r.sink.downs)
		}
		if r.turn() == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// pass is until, but the time of the Link passes.
func (r *rig) pass(what string, most int64, done func() bool) {
	r.t.Helper()
	for end := r.clock.Load() + most; !done(); {
		if r.clock.Load() >= end {
			r.t.Fatalf("waited %v in vain for %s: %+v, downs %v", time.Duration(most), what, r.l.Stats(), r.sink.downs)
		}
		r.settle()
		r.clock.Add(ms / 4)
	}
	r.settle()
}

// settle lets the Link do what is due at this time. Under load a datagram of this machine may
// arrive after its system call has returned; the counters show those that are under way.
func (r *rig) settle() {
	r.t.Helper()
	end := time.Time{}
	for idle := 0; idle < 3; idle++ {
		if r.turn() != 0 {
			idle = 0
		}
		if s := r.l.Stats(); idle == 2 && (s.PacketsIn < r.datagrams || r.prefixes < s.PacketsOut) {
			if end.IsZero() {
				end = time.Now().Add(patience)
			}
			if idle = 0; time.Now().After(end) {
				r.t.Fatalf("%d datagrams and %d packets were lost: %+v", r.datagrams, r.prefixes, s)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// sleep lets the time of the Link pass.
func (r *rig) sleep(d int64) {
	r.t.Helper()
	for end := r.clock.Load() + d; r.clock.Load() < end; {
		r.clock.Add(ms)
		r.settle()
	}
}

// posts makes the Link send a frame of each size.
func (r *rig) posts(sizes ...int) (list []*link.Frame) {
	r.t.Helper()
	list = r.build(sizes...)
	rest := list
	r.pass("room for frames", 60e9, func() bool {
		rest = rest[r.l.Post(r.other, rest):]
		return len(rest) == 0
	})
	return list
}

// build makes a frame of each size for the Link to send.
func (r *rig) build(sizes ...int) (list []*link.Frame) {
	r.t.Helper()
	for _, n := range sizes {
		r.seq++
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Length: uint32(n), Seq: r.seq, A: uint64(n), B: r.seq}}
		switch {
		case n > link.InlineMax:
			f.Payload = r.memory.Fill(n, r.seq)
		default:
			for i := range n {
				f.Inline[i] = byte(i + 1)
			}
		}
		list = append(list, f)
	}
	return list
}

// payload returns the bytes of a frame that was posted.
func (r *rig) payload(f *link.Frame) []byte {
	if f.Payload.Len > 0 {
		return r.memory.Bytes(f.Payload)
	}
	return f.Inline[:f.Head.Length]
}

// made returns a frame for the Link.
func (r *rig) made(n int, socket bool) *frame {
	r.seq++
	f := &frame{head: wire.Header{Type: wire.Data, Length: uint32(n), Seq: r.seq, A: uint64(n), B: ^r.seq}, payload: make([]byte, n), socket: socket}
	_, _ = rand.Read(f.payload) // never fails
	return f
}

// write writes to the data connection, while the Link reads.
func (r *rig) write(b []byte) {
	r.t.Helper()
	r.until("room in the data connection", func() bool {
		n, err := unix.Write(r.data, b)
		if err == nil {
			b = b[n:]
		}
		return len(b) == 0
	})
}

// same compares what was sent with what has arrived.
func same(t testing.TB, i int, h, want *wire.Header, payload, sent []byte) {
	t.Helper()
	if *h != *want || !bytes.Equal(payload, sent) {
		t.Errorf("frame %d arrived as %+v with %d bytes, want %+v with %d", i, *h, len(payload), *want, len(sent))
	}
}

func (r *rig) arrived(what string, n int) {
	r.t.Helper()
	r.until(what, func() bool { return len(r.sink.frames) >= n || len(r.sink.downs) > 0 })
	if len(r.sink.frames) != n || len(r.sink.downs) > 0 {
		r.t.Fatalf("%s: %d frames, want %d; downs %v", what, len(r.sink.frames), n, r.sink.downs)
	}
}

// each runs a test with all kinds of connections.
func each(t *testing.T, test func(*testing.T, mode)) {
	for _, m := range []mode{{}, {encrypt: true}, {higher: true}, {encrypt: true, higher: true}} {
		t.Run(fmt.Sprintf("encrypt=%v,higher=%v", m.encrypt, m.higher), func(t *testing.T) { test(t, m) })
	}
}

// thousands returns n sizes of frames, of which each fills a packet if the path is narrow.
func thousands(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 1000
	}
	return list
}

// numbers returns the numbers of stream packets that have come since the last call.
func (p *peer) numbers() (list []uint32) {
	for _, x := range p.take(kindStream) {
		list = append(list, x.number)
	}
	return list
}

// want checks which stream packets have come since the last call.
func (r *rig) want(what string, numbers ...uint32) {
	r.t.Helper()
	if got := r.numbers(); !slices.Equal(got, numbers) {
		r.t.Errorf("%s: packets %d came, want %d", what, got, numbers)
	}
}

// span returns the numbers from a to b.
func span(a, b uint32) (list []uint32) {
	for ; a <= b; a++ {
		list = append(list, a)
	}
	return list
}

// down waits for the end of the connection with an error, and for the Link's end.
func (r *rig) down(want error) {
	r.t.Helper()
	ended := false
	r.pass("the end of the connection", 1000*ms, func() bool {
		ended = ended || len(r.take(kindEnd)) > 0
		return ended && len(r.sink.downs) > 0
	})
	if len(r.sink.downs) != 1 || !errors.Is(r.sink.downs[0], want) {
		r.t.Errorf("the connection ended with %v, want %v", r.sink.downs, want)
	}
}
