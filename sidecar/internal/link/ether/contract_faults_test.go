package ether_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/ether"
)

// TestContractIgnored sends packets that have to be ignored.
func TestContractIgnored(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		r := newRig(t, m)
		f := r.made(5, false)
		body := append(prefix{number: 1, next: 1, limit: 257}.encode(), append(f.encode(), f.payload...)...)
		r.sent[1] = true
		seal := func(kind uint8, counter uint64) []byte { return r.out.seal(r.linkSession, kind, counter, body) }
		counted := func(what string, get func(ether.Stats) uint64, list ...[]byte) {
			t.Helper()
			before := get(r.l.Stats())
			for _, b := range list {
				r.raw(b)
			}
			r.until(what, func() bool { return get(r.l.Stats()) >= before+uint64(len(list)) })
			r.arrived(what, 0)
		}
		var forged [][]byte
		for _, i := range []int{4, 5, 9, 16, 40, len(body) + 16, len(body) + 31} {
			b := seal(kindStream, r.counter+1)
			b[i] ^= 1
			forged = append(forged, b)
		}
		b := seal(kindStream, r.counter+1)
		forged = append(forged, b[:len(b)-1], append(bytes.Clone(b), 0), r.in.seal(r.linkSession, kindStream, r.counter+1, body))
		counted("forged packets", func(s ether.Stats) uint64 { return s.Forged }, forged...)
		counted("unknown sessions and short packets", func(s ether.Stats) uint64 { return s.Odd },
			r.out.seal(r.linkSession+1, kindStream, r.counter+1, body), r.out.seal(0, kindStream, r.counter+1, body),
			b[:4], b[:15], b[:16], b[:31])

		r.raw(nil) // is not counted
		old := r.send(kindProbe, nil)
		high := r.counter + 5000
		top := r.out.seal(r.linkSession, 200, high, []byte("a kind that is not known"))
		r.raw(top)
		r.raw(r.out.seal(r.linkSession, 0, high-1, nil))
		counted("old counters", func(s ether.Stats) uint64 { return s.Replayed }, old, top,
			seal(kindStream, high-history), seal(kindStream, high-history-1), seal(kindStream, r.counter+1))
		r.raw(seal(kindStream, high-history+1)) // the oldest one that is accepted
		r.delivered([]*frame{f})
		counted2 := r.l.Stats().Replayed
		r.raw(seal(kindStream, high-history+1))
		r.until("a copy", func() bool { return r.l.Stats().Replayed == counted2+1 })
		r.counter = high
		r.compare(r.posts(10))
	})
}

// TestContractFuture acknowledges packets that were not sent.
func TestContractFuture(t *testing.T) {
	for i, x := range []struct {
		kind uint8
		prefix
	}{
		{kindAck, prefix{next: 6, limit: 300}},
		{kindAck, prefix{next: 5, bits: 1, limit: 300}},
		{kindAck, prefix{next: 3, bits: 1 << 1, limit: 300}}, // 5
		{kindAck, prefix{next: 1, bits: 1 << 63, limit: 300}},
		{kindStream, prefix{number: 1, next: 6, limit: 300}},
		{kindAck, prefix{next: 1 << 31, limit: 300}},
	} {
		r := newRig(t, mode{path: 1232})
		r.manual = true
		r.posts(thousands(4)...)
		r.settle()
		r.ack(1, 0b110, 257) // what was sent is no fault
		r.settle()
		if len(r.sink.downs) > 0 {
			t.Fatal(r.sink.downs)
		}
		body := x.encode()
		if x.kind == kindStream {
			body = append(body, r.made(0, false).encode()...)
		}
		r.send(x.kind, body)
		r.down(link.ErrProtocol)
		if len(r.sink.frames) > 0 {
			t.Errorf("case %d: the frame of a peer that broke the protocol was delivered", i)
		}
	}
}

// TestContractMalformed sends packets that are wrong in themselves. The contract calls only
// the first of them a violation (§6).
func TestContractMalformed(t *testing.T) {
	head := prefix{number: 1, next: 1, limit: 257}.encode()
	for _, body := range [][]byte{
		append(bytes.Clone(head), make([]byte, 64)...), // a header of version 0
		append(bytes.Clone(head), 1, 2, 3),             // a part of a header
		append(bytes.Clone(head), (&frame{head: wire.Header{Type: wire.Data, Seq: 1, Length: 9}}).encode()...), // no payload
		head[:23],
	} {
		r := newRig(t, mode{path: 1232})
		r.sent[1] = true
		r.send(kindStream, body)
		r.down(link.ErrProtocol)
	}
}

// TestContractWindow checks that the Link sends neither beyond the limit, nor too far ahead;
// the peer checks each packet.
func TestContractWindow(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	r.manual = true
	list := r.build(thousands(2000)...)
	more := func() int {
		for range 3 {
			list = list[r.l.Post(r.other, list):]
			r.settle()
		}
		return len(r.numbers())
	}
	if n := more(); n != 16 {
		t.Errorf("%d packets came at first, want 16", n)
	}
	for range 8 {
		r.ack(r.next, 0, r.next+ahead)
		r.clock.Add(ms)
		if n := more(); n > ahead {
			t.Errorf("%d packets were sent at once", n)
		}
	}
	m := r.next
	r.ack(m-100, 0, m-100+20*ahead)
	n := more()
	if n != ahead-100 { // of a limit that is far ahead, a part is used
		t.Errorf("%d packets came with 100 under way, want %d", n, ahead-100)
	}
	r.ack(m-100, ^uint64(0), m+ahead) // the window has room again, the first one is missing
	r.clock.Add(ms)
	more()

	// Room up to a limit that is below the window.
	r = newRig(t, mode{path: 1232})
	r.manual = true
	list = r.build(thousands(1000)...)
	for more(); r.next < firstLimit; more() {
		r.ack(r.next, 0, firstLimit)
	}
	r.ack(r.next, 0, firstLimit)
	r.asked = 0
	r.sleep(1500 * ms)
	if n := len(r.numbers()); n != 0 || r.most != firstLimit-1 || r.asked < 2 || r.asked > 10 {
		t.Errorf("%d packets came without room, and the last one was %d; room was asked for %d times", n, r.most, r.asked)
	}
	r.ack(r.next, 0, firstLimit+3)
	if n := more(); n != 3 {
		t.Errorf("%d packets came with room for 3", n)
	}
	r.ack(1, 0, 10) // an old one
	r.ack(r.next, 0, firstLimit+5)
	if n := more(); n != 2 {
		t.Errorf("%d packets came with room for 2 more", n)
	}
	for _, d := range []uint32{1, 10, 30} { // acknowledgements that come late
		r.ack(r.next-d, 0, r.next-d+ahead)
	}
	r.settle()
	if len(r.sink.downs) > 0 {
		t.Errorf("an old acknowledgement ended the connection: %v", r.sink.downs)
	}
}

// TestContractFirstLimit announces less room than a side has at first: a limit does not move
// back.
func TestContractFirstLimit(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	r.manual = true
	r.ack(1, 0, 10)
	r.posts(thousands(12)...)
	r.settle()
	if n := len(r.numbers()); n != 12 {
		t.Errorf("%d packets came, want 12", n)
	}
}

// TestContractEnds checks what the Link sends when its connection is over.
func TestContractEnds(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"break":    func(r *rig) { r.l.Break(r.other) },
		"data":     func(r *rig) { r.hang() },
		"end":      func(r *rig) { r.send(kindEnd, nil) },
		"protocol": func(r *rig) { r.ack(9, 0, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, mode{path: 1232})
			r.manual = true
			r.posts(1000)
			f := r.made(7, false)
			r.stream(1, f) // it is before the end, and is still delivered
			r.settle()
			end(r)
			want := link.ErrBroken
			if name == "protocol" {
				want = link.ErrProtocol
			}
			r.down(want)
			start := r.clock.Load()
			if len(r.sink.frames) != 1 {
				t.Errorf("%d frames were delivered, want 1", len(r.sink.frames))
			}
			answers := func(what string, kind uint8, n int) {
				t.Helper()
				r.take()
				r.send(kind, prefix{next: 1, limit: 257}.encode())
				got := 0
				r.until(what, func() bool { got += len(r.take(kindEnd)); return got >= n })
				r.settle()
				if got += len(r.take(kindEnd)); got != n {
					t.Errorf("%s is answered with %d ends, want %d", what, got, n)
				}
			}
			answers("an ack", kindAck, 1)
			r.sleep(4900*ms - (r.clock.Load() - start))
			answers("an ack after 4.9 s", kindAck, 1)
			answers("an unknown kind after 4.9 s", 99, 1)
			r.send(kindEnd, nil)
			r.settle()
			if len(r.take(kindEnd)) > 0 {
				t.Error("an end is answered")
			}
			r.sleep(300 * ms)
			answers("an ack after 5.2 s", kindAck, 0)
			if len(r.sink.downs) != 1 {
				t.Errorf("downs %v", r.sink.downs)
			}
		})
	}
}

// TestContractForget checks that the Link waits for acknowledgements before it closes the
// data connection.
func TestContractForget(t *testing.T) {
	for _, acknowledged := range []bool{false, true} {
		for _, all := range []bool{false, true} {
			r := newRig(t, mode{path: 1232})
			r.manual = true
			r.posts(1000)
			r.settle()
			start := r.clock.Load()
			if acknowledged {
				r.ack(2, 0, 258)
			}
			if all {
				r.close()
			} else {
				r.l.Forget(r.other)
			}
			r.closes(!all)
			if d := r.clock.Load() - start; !acknowledged && d < 200*ms {
				t.Errorf("all %v: the data connection ended after %v, want 200 ms", all, time.Duration(d))
			}
			if len(r.sink.downs) > 0 || len(r.take(kindEnd)) > 0 {
				t.Errorf("all %v: downs %v, or an end came", all, r.sink.downs)
			}
		}
	}
}

// closes waits for the end of the data connection.
func (r *rig) closes(poll bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); ; {
		n, err := unix.Read(r.data, make([]byte, 1))
		if n == 0 && err == nil {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("the data connection is still open: %d, %v", n, err)
		}
		if poll {
			r.sleep(ms)
		} else {
			r.peer.turn()
		}
	}
}

// TestContractProbes checks probes and echoes of other sizes, and echoes of no probe.
func TestContractProbes(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		m.path = 1452
		r := newRig(t, m)
		sizes := []int{headBytes + tagBytes, 33, 1232, 5000, 8952}
		clear(r.echoes)
		r.probe(sizes...)
		r.until("echoes", func() bool { return len(r.echoes) == len(sizes) })
		for _, n := range sizes {
			if r.echoes[uint32(n)] != 1 {
				t.Errorf("a probe of %d bytes has %d echoes", n, r.echoes[uint32(n)])
			}
		}
		// The peer fails the test if a packet is larger than its path.
		for _, n := range []uint32{1453, 8951, 9000, 60_000, 1 << 31} {
			r.send(kindEcho, le.AppendUint32(nil, n))
		}
		r.send(kindEcho, []byte{1, 2, 3})
		r.settle()
		r.compare(r.posts(append(thousands(20), 1300, 1400, 1500, 8000, 8800)...))
	})
}

// TestContractEarly sends packets before the Link has the data connection: the outcome of the
// meeting may reach the peer first.
func TestContractEarly(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		var f *frame
		m.early = func(r *rig) {
			f = r.made(10, false)
			r.stream(1, f)
			r.settle()
		}
		r := newRig(t, m)
		r.delivered([]*frame{f})
	})
}

// TestContractOffers checks which offers the Link refuses.
func TestContractOffers(t *testing.T) {
	t.Parallel()
	r := newUnconnected(t, mode{})
	good := r.offer()
	for i, c := range []struct {
		bad   []byte
		cause string // which a Connect without probes gives
	}{
		{nil, "the peer's offer has version 0 and 0 bytes"},
		{good[:39], "the peer's offer has version 1 and 39 bytes"},
		{append([]byte{0}, good[1:]...), "the peer's offer has version 0"},
		{append([]byte{2}, good[1:]...), "the peer's offer has version 2"},
		{append([]byte{1, 1}, good[2:]...), "only one side encrypts"},
		{slices.Concat(good[:4], []byte{0, 0, 0, 0}, good[8:]), "the session 0"},
	} {
		e := r.l.Prepare(r.other)
		if err := e.Connect(c.bad); err == nil || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("offer %d: %v, want %q", i, err, c.cause)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestContractForgedProbe sends a forged probe from another address before the true one.
func TestContractForgedProbe(t *testing.T) {
	r := newUnconnected(t, mode{higher: true})
	other := newPeer(t, false, true, r.clock.Load)
	r.forge = func() {
		other.link = r.peer.link
		b := r.out.seal(r.linkSession, kindProbe, 1, make([]byte, 1200))
		b[len(b)-1] ^= 1
		other.raw(b)
		odd := uint64(0)
		r.until("the forged probe", func() bool {
			s := r.l.Stats()
			if s.Odd > odd { // Connect has not made the session known yet
				odd = s.Odd
				other.raw(b)
			}
			return s.Forged == 1
		})
	}
	r.connect(nil)
	r.compare(r.posts(10))
	if _, _, err := unix.Recvfrom(other.fd, make([]byte, 100), unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the Link has sent to an address without authentic packets: %v", err)
	}
	// The contract does not say whether packets from another address count.
	b := r.out.seal(r.linkSession, kindStream, r.counter+1, append(prefix{number: 1, next: 2, limit: 258}.encode(), r.made(0, false).encode()...))
	r.sent[1] = true
	other.raw(b)
	r.arrived("a frame from another address", 1)
	r.sleep(10 * ms)
	if r.told.next != 2 {
		t.Error("the Link has acknowledged to another address")
	}
}

// TestContractSilentPeer checks that a Link without echoes gives up.
func TestContractSilentPeer(t *testing.T) {
	t.Parallel()
	r := newUnconnected(t, mode{})
	e := r.l.Prepare(r.other)
	r.meet(e.Offer())
	over := make(chan error, 1)
	go func() { over <- e.Connect(r.offer()) }()
	r.path = 0
	rounds := 0
	for err, done := error(nil), false; !done; {
		select {
		case err = <-over:
			if done = true; err == nil {
				t.Error("the Link is connected without an echo")
			}
		default:
			r.turn()
			for _, x := range r.take(kindProbe) {
				if x.size == 1232 {
					rounds++
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	if rounds < 2 || rounds > 51 {
		t.Errorf("%d probes came in a second, want one every 20 ms", rounds)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
