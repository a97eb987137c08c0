package verbs

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// newQueue shares the regions, as one protection domain does.
func (n *fakeNIC) newQueue(int) (nic, error) {
	o, err := n.f.open(n.name)
	if err == nil {
		o.regions, o.second = n.regions, true
	}
	return o, err
}

func (n *fakeNIC) reopen(int) (nic, link.Grant, error) {
	o, err := n.f.open(n.name)
	return o, link.Grant{FD: 77, Domain: 5, Driver: 14}, err
}

const (
	lentRegion  = link.Region(40)
	plainRegion = link.Region(4)
	lentBytes   = 1 << 20
)

// lender is one of two links, with an application that has registered memory.
type lender struct {
	*Link
	own   arena // memory that the sidecar shares with the application
	mem   []byte
	app   *fakeNIC // the application's context
	at    region
	dones map[uint64]error
	taker
}

func (s *lender) Done(_ link.Peer, token uint64, err error) { s.dones[token] = err }

func lenders(t *testing.T) [2]*lender {
	t.Helper()
	f := newFabric()
	p := pairOf(t, bootstrap.ReceivesOwn, func() nic {
		n, err := f.open("fake")
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	var all [2]*lender
	for i, e := range []linktest.Side{p.A, p.B} {
		l := e.Link.(*Link)
		l.cfg.Lends = true
		s := &lender{Link: l, own: make(arena, lentBytes), mem: make([]byte, lentBytes), dones: map[uint64]error{}}
		l.SetMemory(s.own)
		l.AddRegion(plainRegion, 0, lentBytes)
		x, err := l.OpenContext()
		if err != nil {
			t.Fatal(err)
		}
		s.app = x.(*client).nic.(*fakeNIC)
		if s.at, err = s.app.register(s.mem, randomAddress(s.mem), true); err != nil {
			t.Fatal(err)
		}
		if err := l.Admit(lentRegion, x); err != nil {
			t.Fatal(err)
		}
		if err := l.Lend(lentRegion, 3, s.lent()); err != nil {
			t.Fatal(err)
		}
		all[i] = s
	}
	join(t, all[0].Link, all[1].Link) // once more, since now both lend
	all[0].pass(all[1])
	return all
}

func (s *lender) lent() link.Lent {
	return link.Lent{Addr: s.at.addr, Len: lentBytes, Lkey: s.at.lkey, Rkey: s.at.rkey}
}

func (s *lender) pass(o *lender) {
	for range 200 {
		s.Poll(s)
		o.Poll(o)
		s.Arm()
		o.Arm()
	}
}

// ref returns a part of the lent memory, or of the sidecar's own.
func (s *lender) ref(lent bool, off, n uint64) (link.Ref, []byte) {
	if lent {
		return link.Ref{Region: lentRegion, Off: 3<<link.LentShift | off, Len: n}, s.mem[off:][:n]
	}
	return link.Ref{Region: plainRegion, Off: off, Len: n}, s.own[off:][:n]
}

// read reads from o's memory into s's; it tries again while there is no queue pair.
func (s *lender) read(t *testing.T, o *lender, token uint64, to, from bool) (dst, src []byte, err error) {
	t.Helper()
	r, src := o.ref(from, 5000, 600_001)
	for i := range src {
		src[i] = byte(uint64(i) * (token + 3))
	}
	k, err := o.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	d, dst := s.ref(to, 300, 600_001)
	clear(dst)
	for range 3 {
		if err = s.Read(0, token, d, k); err == nil {
			break
		}
		s.pass(o)
	}
	if err != nil {
		return dst, src, err
	}
	s.pass(o)
	err, ok := s.dones[token]
	if !ok {
		t.Fatal("the read does not end")
	}
	o.Release(k)
	return dst, src, err
}

// TestLentReads checks that the device reads from lent memory and into it, over queue
// pairs that are asked for once for each pair of domains.
func TestLentReads(t *testing.T) {
	all := lenders(t)
	token := uint64(0)
	for range 3 {
		for i, s := range all {
			for _, x := range [][2]bool{{false, true}, {true, false}, {true, true}} {
				token++
				dst, src, err := s.read(t, all[1-i], token, x[0], x[1])
				if err != nil || !bytes.Equal(dst, src) {
					t.Fatalf("into lent %v, from lent %v: %v, or the bytes are not there", x[0], x[1], err)
				}
			}
		}
	}
	for _, s := range all {
		if n := s.Stats(); n.LentReads != 9 || n.LentBytes != 9*600_001 || n.LentPairs != 3 || n.LentFaults != 0 {
			t.Errorf("%+v", n)
		}
		if c := s.Lent(); c != (link.LentCounts{Reads: 9, Bytes: 9 * 600_001, Pairs: 3}) {
			t.Errorf("counted is %+v", c)
		}
		if err := s.Write(0, 99, link.Ref{Region: lentRegion, Off: 3 << link.LentShift, Len: 8}, link.Key{Key: keyBit}, 0); !errors.Is(err, errLent) {
			t.Errorf("writing from lent memory: %v", err)
		}
	}
}

// reads starts n reads of bytes each from o's lent memory into the memory that s shares,
// and returns the expected bytes of each.
func (s *lender) reads(t *testing.T, o *lender, n int, size uint64) (ends map[uint64][2][]byte) {
	t.Helper()
	ends = map[uint64][2][]byte{}
	for i := range uint64(n) {
		r, src := o.ref(true, i*1000, size)
		k, err := o.Register(r)
		if err != nil {
			t.Fatal(err)
		}
		d, dst := s.ref(false, i*size, size)
		clear(dst)
		if err := s.Read(0, 100+i, d, k); err != nil {
			t.Fatal(err)
		}
		ends[100+i] = [2][]byte{dst, src}
	}
	return ends
}

// TestLentParts checks that a range larger than the bound of a registration, or of a
// turn, is read from lent memory into the sidecar's own part by part.
func TestLentParts(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	registerParts(t, a.Link)
	a.AddRegion(plainRegion, 0, lentBytes)
	if _, _, err := a.read(t, b, 1, false, true); err != nil { // makes the queue pair
		t.Fatal(err)
	}
	for i := range b.mem {
		b.mem[i] = byte(i * 7 / 5)
	}
	ends := a.reads(t, b, 5, 3*partMax-100)
	for range 200 {
		a.pass(b)
		parts(t, a.nic.(*fakeNIC), a.own)
	}
	for token, x := range ends {
		if err, over := a.dones[token]; !over || err != nil || !bytes.Equal(x[0], x[1]) {
			t.Errorf("read %d: over %v, %v, or the bytes are not there", token, over, err)
		}
	}
	unused(t, a.Link)
	if n := a.Stats(); n.LentFaults != 0 {
		t.Errorf("%d queue pairs have failed", n.LentFaults)
	}
}

// TestLentPartRefused checks that if the device has no room for a part in the middle, the
// operation ends with that error, the operations behind it continue, and the queue pair
// stays.
func TestLentPartRefused(t *testing.T) {
	for polls := range 12 {
		all := lenders(t)
		a, b := all[0], all[1]
		registerParts(t, a.Link)
		a.AddRegion(plainRegion, 0, lentBytes)
		if _, _, err := a.read(t, b, 1, false, true); err != nil {
			t.Fatal(err)
		}
		ends := a.reads(t, b, 3, 4*partMax)
		for range polls {
			a.Poll(a)
			b.Poll(b)
		}
		device := a.nic.(*fakeNIC)
		device.limit = 1
		a.pass(b)
		refused := 0
		for token, x := range ends {
			err, over := a.dones[token]
			switch {
			case errors.Is(err, gather.ErrNoRoom):
				refused++
			case !over || err != nil || !bytes.Equal(x[0], x[1]):
				t.Errorf("after %d polls, read %d: over %v, %v, or the bytes are not there", polls, token, over, err)
			}
		}
		if refused == 0 {
			t.Errorf("after %d polls: nothing was refused", polls)
		}
		unused(t, a.Link)
		if n := a.Stats(); n.LentFaults != 0 {
			t.Errorf("after %d polls: %d queue pairs have failed", polls, n.LentFaults)
		}
	}
}

// TestLentIdle checks that the engine can sleep when no operation is in flight any more.
func TestLentIdle(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	r, _ := b.ref(true, 0, 4096)
	k, err := b.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := a.ref(true, 0, 4096)
	for token := uint64(1); a.dones[3] != nil || len(a.dones) < 3; {
		if a.Read(0, token, d, k) == nil {
			a.Arm() // an event reports its completion
			token++
		}
		a.pass(b)
	}
	for _, s := range all {
		s.pass(s)
		ready := []unix.PollFd{{Fd: int32(s.FD()), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 0); n != 0 || err != nil || s.Arm() {
			t.Errorf("an idle link is ready: %d, %v", n, err)
		}
	}
}

// TestLentLies checks that an application whose registration has ended, or differs from
// its declaration, loses the operation and nothing else: the connection stays, and later
// operations get another queue pair.
func TestLentLies(t *testing.T) {
	for what, spoil := range map[string]func(s *lender){
		"the registration has ended": func(s *lender) {
			if err := s.app.deregister(s.at); err != nil {
				t.Fatal(err)
			}
		},
		"another key": func(s *lender) {
			m := s.lent()
			m.Lkey, m.Rkey = m.Lkey+1, m.Rkey+1
			_ = s.Lend(lentRegion, 3, m)
		},
		"another address": func(s *lender) {
			m := s.lent()
			m.Addr += lentBytes
			_ = s.Lend(lentRegion, 3, m)
		},
	} {
		all := lenders(t)
		a, b := all[0], all[1]
		spoil(a)
		for i, x := range []struct {
			s, o *lender
			to   bool
		}{{a, b, true}, {b, a, false}} {
			if _, _, err := x.s.read(t, x.o, uint64(i+1), x.to, !x.to); err == nil {
				t.Errorf("%s: a read of it succeeds", what)
			}
		}
		if a.wrong != nil || b.wrong != nil {
			t.Errorf("%s: the connection has ended: %v, %v", what, a.wrong, b.wrong)
		}
		dst, src, err := a.read(t, b, 10, false, true) // of the other application
		if err != nil || !bytes.Equal(dst, src) {
			t.Errorf("%s: the other application's memory is not read: %v", what, err)
		}
		if a.Stats().LentFaults != 1 || b.Stats().LentFaults != 1 {
			t.Errorf("%s: %d and %d queue pairs have failed", what, a.Stats().LentFaults, b.Stats().LentFaults)
		}
		for range 2 * failsMax { // it is not tried for ever
			_, _, _ = b.read(t, a, 11, false, true)
		}
		if n := b.Stats().LentFaults; n != failsMax {
			t.Errorf("%s: %d queue pairs were made and failed, want %d", what, n, failsMax)
		}
	}
}

// TestLenderLeaves checks that when an application leaves, everything that reads from and
// into its memory ends, on both sides, and that the lentQPs of a connection end with it.
func TestLenderLeaves(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	for i, x := range [][2]bool{{false, true}, {true, false}, {true, true}} {
		for k, s := range all {
			if _, _, err := s.read(t, all[1-k], uint64(i+1), x[0], x[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, _ := a.ref(true, 0, 4096)
	k, err := a.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := b.ref(false, 0, 4096)
	if err := b.Read(0, 50, d, k); err != nil { // in flight when the application leaves
		t.Fatal(err)
	}
	a.DropRegion(lentRegion)
	a.pass(b)
	if err := b.dones[50]; !errors.Is(err, link.ErrBroken) {
		t.Errorf("a read from memory whose application has left ends with %v", err)
	}
	// Four queue pairs were in that application's domain; of the rest the peer's
	// application has one on each side.
	if a.lending.lentQPs != 2 || b.lending.lentQPs != 2 {
		t.Errorf("%d and %d queue pairs are left, want 2 at each side", a.lending.lentQPs, b.lending.lentQPs)
	}
	if err := b.Read(0, 51, d, k); err == nil {
		t.Error("another read is accepted at once")
	}
	a.pass(b)
	a.Forget(0)
	a.pass(b)
	if a.lending.lentQPs != 0 || b.lending.lentQPs != 0 {
		t.Errorf("%d and %d queue pairs are left of a connection that has ended", a.lending.lentQPs, b.lending.lentQPs)
	}
}

// TestWithdraw checks that a send from lent memory that ends early ends the queue pair of
// its own receiver, and not those by which other peers read from that application's
// memory.
func TestWithdraw(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	if _, _, err := a.read(t, b, 1, false, true); err != nil {
		t.Fatal(err)
	}
	ref, _ := b.ref(true, 0, 4096)
	k, err := b.Register(ref)
	if err != nil {
		t.Fatal(err)
	}
	b.Withdraw(1, k)
	a.pass(b)
	if len(b.conns[0].answered) != 1 || len(a.conns[0].asked) != 1 {
		t.Errorf("%d and %d queue pairs are left, although the key was another peer's", len(b.conns[0].answered), len(a.conns[0].asked))
	}
	ownRegs, _ := b.ref(false, 0, 4096)
	kept, err := b.Expose(ownRegs)
	if err != nil {
		t.Fatal(err)
	}
	b.Withdraw(0, kept)
	if len(b.exported) != 0 {
		t.Errorf("%d registrations are left", len(b.exported))
	}
	d, _ := a.ref(false, 0, 4096)
	if err := a.Read(0, 2, d, k); err != nil {
		t.Fatal(err)
	}
	b.Withdraw(0, k)
	a.pass(b)
	if err := a.dones[2]; !errors.Is(err, link.ErrBroken) || b.lending.lentQPs != 0 || a.lending.lentQPs != 0 {
		t.Errorf("a read by a withdrawn key ends with %v; %d and %d queue pairs are left", err, a.lending.lentQPs, b.lending.lentQPs)
	}
}

// TestLentAreBounded checks that requests beyond the bounds are refused, so that messages
// are copied.
func TestLentAreBounded(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	b.lending.lentQPs += lentQPsMax
	if _, _, err := a.read(t, b, 1, false, true); !errors.Is(err, errNotYet) {
		t.Errorf("a queue pair beyond the peer's bound: %v", err)
	}
	b.lending.lentQPs -= lentQPsMax
	a.lending.lentQPs += lentQPsMax
	if _, _, err := a.read(t, b, 2, true, true); !errors.Is(err, errLentQPs) {
		t.Errorf("a queue pair beyond the link's bound: %v", err)
	}
	a.lending.lentQPs -= lentQPsMax
	a.lending.byRegion[lentRegion].most = 0
	if _, _, err := a.read(t, b, 2, true, true); !errors.Is(err, errLentQPs) {
		t.Errorf("a queue pair beyond its domain's bound: %v", err)
	}
	a.lending.byRegion[lentRegion].most = lentQPsPerDomain
	if dst, src, err := a.read(t, b, 3, true, true); err != nil || !bytes.Equal(dst, src) {
		t.Errorf("with room again: %v", err)
	}
}

// TestLentMessages checks that a peer that sends an impossible message about lentQPs
// loses its connection.
func TestLentMessages(t *testing.T) {
	o := goodOffer()
	for what, play := range map[string]func(c *conn) error{
		"the same queue pair twice": func(c *conn) error {
			ask := (&lentMessage{kind: lentAsk, number: 7, offer: &o}).encode()
			if err := c.onLent(ask); err != nil {
				t.Fatal(err)
			}
			return c.onLent(ask)
		},
		"wishes without end": func(c *conn) error {
			for n := range uint32(lentOutMax) {
				if err := c.onLent((&lentMessage{kind: lentAsk, number: n + 9, domain: 99, offer: &o}).encode()); err != nil {
					t.Fatal(err)
				}
			}
			return c.onLent((&lentMessage{kind: lentAsk, number: 8, offer: &o}).encode())
		},
		"where nothing is lent": func(c *conn) error {
			c.local.lends = false
			return c.onLent((&lentMessage{kind: lentEnd, number: 1}).encode())
		},
		"no word": func(c *conn) error { return c.onLent(make([]byte, 12)) },
	} {
		all := lenders(t)
		if err := play(all[0].conns[0]); !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzLent checks that a message about lentQPs that is accepted is encoded the same way.
func FuzzLent(f *testing.F) {
	o := goodOffer()
	f.Add((&lentMessage{kind: lentAsk, number: 7, domain: 9, offer: &o}).encode())
	f.Add((&lentMessage{kind: lentEnd, asker: true, number: 7}).encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, err := parseLent(raw)
		if err != nil {
			if !errors.Is(err, link.ErrProtocol) {
				t.Fatalf("%v does not wrap ErrProtocol", err)
			}
			return
		}
		if again := w.encode(); string(again) != string(raw) {
			t.Errorf("%x became %x", raw, again)
		}
	})
}
