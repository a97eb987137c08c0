package linktest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// remotes returns the links of the sides as Remotes; false: they are none, or lack the
// capability.
func (p *Pair) remotes(can func(link.Caps) bool) (a, b link.Remote, ok bool) {
	if !can(p.A.Link.Caps()) {
		return nil, nil, false
	}
	a, b = p.A.Link.Abilities().Remote, p.B.Link.Abilities().Remote
	return a, b, a != nil && b != nil
}

// rejoin makes a new connection if a refused access has ended this one, as the rules of
// InfiniBand require; both sides must have reported the end.
func (p *Pair) rejoin(t *testing.T, sa, sb *Sink) {
	t.Helper()
	for range 1000 { // Down may follow the refusal
		p.step(sa, sb)
	}
	if len(sa.downs) == 0 && len(sb.downs) == 0 {
		return
	}
	p.until(t, sa, sb, "the end at both sides", func() bool { return len(sa.downs) > 0 && len(sb.downs) > 0 })
	p.Join(t)
}

func register(t *testing.T, l link.Remote, ref link.Ref) link.Key {
	t.Helper()
	k, err := l.Register(ref)
	if err != nil {
		t.Fatal(err)
	}
	if k.Key == 0 {
		t.Fatal("a registration has key 0")
	}
	return k
}

var accessSizes = []int{1, 63, 64, 4096, 100_000, 3 << 20}

func testRead(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Read })
	if !ok {
		return
	}
	sa, sb := p.sinks()
	for i, n := range accessSizes {
		token := uint64(i + 1)
		src, dst := p.B.Memory.fill(n+200, token), p.A.Memory.add(n+200)
		k := register(t, b, src.Slice(50, uint64(n+100)))
		k.Addr += 20
		if err := a.Read(p.A.Peer, token, dst.Slice(64, uint64(n)), k); err != nil {
			t.Fatal(err)
		}
		p.until(t, sa, sb, "the end of a read", func() bool { _, over := sa.dones[token]; return over })
		if err := sa.dones[token]; err != nil {
			t.Fatal(err)
		}
		want := make([]byte, n+200)
		copy(want[64:64+n], p.B.Memory.Bytes(src.Slice(70, uint64(n))))
		if !bytes.Equal(p.A.Memory.Bytes(dst), want) {
			t.Fatalf("a read of %d bytes brought other bytes, or changed bytes outside the range", n)
		}
		b.Deregister(register(t, b, src)) // does not disturb the other registration
	}
}

func testWrite(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Write })
	if !ok {
		return
	}
	sa, sb := p.sinks()
	for i, n := range accessSizes {
		token, notify := uint64(i+1), uint64(1000+i)
		src, dst := p.A.Memory.fill(n, token), p.B.Memory.add(n+200)
		k := register(t, b, dst.Slice(50, uint64(n+100)))
		k.Addr += 20
		if err := a.Write(p.A.Peer, token, src, k, notify); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, n+200)
		copy(want[70:], p.A.Memory.Bytes(src))
		if p.B.Link.Caps().Notify {
			// The notification alone must be enough for the reader.
			p.until(t, sa, sb, "the notification of a write", func() bool { return len(sb.written) == i+1 })
			if sb.written[i] != notify {
				t.Fatalf("notification %d, want %d", sb.written[i], notify)
			}
			if !bytes.Equal(p.B.Memory.Bytes(dst), want) {
				t.Fatalf("the notification of a write of %d bytes arrived before the data", n)
			}
		}
		p.until(t, sa, sb, "the end of a write", func() bool { _, over := sa.dones[token]; return over })
		if err := sa.dones[token]; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p.B.Memory.Bytes(dst), want) {
			t.Fatalf("a write of %d bytes brought other bytes, or changed bytes outside the range", n)
		}
	}
}

// testProtection checks that nothing is read or written without the right key, outside
// its range, or after its registration.
func testProtection(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Register && c.Read })
	if !ok {
		return
	}
	const n = 4096
	secret := p.B.Memory.fill(n, 9)
	before := bytes.Clone(p.B.Memory.Bytes(secret))
	good := register(t, b, secret.Slice(1024, 1024))
	gone := register(t, b, secret)
	b.Deregister(gone)
	if gone.Key == good.Key || gone.Key == good.Key+1 || gone.Key+1 == good.Key {
		t.Fatalf("keys %x and %x can be guessed from each other", good.Key, gone.Key)
	}
	at := func(k link.Key, by int64) link.Key { k.Addr += uint64(by); return k }
	for name, x := range map[string]struct {
		key link.Key
		n   uint64
	}{
		"unknown key":         {link.Key{Key: good.Key ^ 1, Addr: good.Addr}, 8},
		"key 0":               {link.Key{Addr: good.Addr}, 8},
		"deregistered":        {gone, 8},
		"one byte too many":   {good, 1025},
		"one byte too late":   {at(good, 1), 1024},
		"before its start":    {at(good, -1), 8},
		"far away":            {at(good, 1<<40), 8},
		"address that wraps":  {at(good, -(1 << 62)), 8},
		"end that wraps over": {link.Key{Key: good.Key, Addr: ^uint64(0) - 3}, 8},
	} {
		for _, write := range []bool{false, true} {
			if write && !a.Caps().Write {
				continue
			}
			sa, sb := p.sinks()
			mine := p.A.Memory.add(int(x.n))
			var err error
			if write {
				err = a.Write(p.A.Peer, 1, mine, x.key, 0)
			} else {
				err = a.Read(p.A.Peer, 1, mine, x.key)
			}
			if err == nil {
				p.until(t, sa, sb, "the end of a forbidden access", func() bool { return len(sa.dones) > 0 })
				err = sa.dones[1]
			}
			if !errors.Is(err, link.ErrKey) {
				t.Errorf("%s, write %v: got %v, want ErrKey", name, write, err)
			}
			if !bytes.Equal(p.A.Memory.Bytes(mine), make([]byte, x.n)) {
				t.Errorf("%s: a forbidden read brought data", name)
			}
			if !bytes.Equal(p.B.Memory.Bytes(secret), before) {
				t.Errorf("%s: a forbidden write changed memory", name)
			}
			p.rejoin(t, sa, sb)
		}
	}
}
