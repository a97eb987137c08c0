package verbs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ender records how operations end.
type ender struct {
	taker
	ends map[uint64]error
}

func (e *ender) Done(_ link.Peer, token uint64, err error) { e.ends[token] = err }

const (
	partMax = 64 << 10
	partsAt = 12345 // in the arena: not at the beginning of a page or a part
	partsN  = 3 << 20
)

// parted is two links, one of which registers at most 64 KiB of an arena at once, and
// memory of the other that it may access.
type parted struct {
	*sending
	theirs []byte
	key    link.Key
	sink   ender
}

func newParted(t *testing.T) *parted {
	t.Helper()
	p := &parted{sending: newSending(t), theirs: make([]byte, partsN), sink: ender{ends: map[uint64]error{}}}
	registerParts(t, p.from)
	p.from.AddRegion(arenaRegion, 0, arenaBytes)
	var err error
	p.to.SetMemory(arena(p.theirs))
	p.key, err = p.to.Register(link.Ref{Region: 9, Len: partsN})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// registerParts makes a link without sessions register at most a part at once.
func registerParts(t *testing.T, l *Link) {
	t.Helper()
	l.cfg.registerMax = partMax
	var err error
	if l.regs, err = newRegs(l.nic, func(r link.Ref) []byte { return l.memory.Bytes(r) }, l.cfg, exporter{l}); err != nil {
		t.Fatal(err)
	}
}

// step polls both links, and checks the registrations of the device.
func (p *parted) step(t *testing.T) {
	t.Helper()
	p.from.Poll(&p.sink)
	p.to.Poll(&taker{})
	parts(t, p.device, p.arena)
}

// parts checks that each registration of the device is at most a part of mem.
func parts(t *testing.T, n *fakeNIC, mem []byte) {
	t.Helper()
	for _, r := range n.regions {
		if base := addressOf(mem); addressOf(r.mem) >= base && addressOf(r.mem) < base+uint64(len(mem)) && len(r.mem) > partMax {
			t.Fatalf("%d bytes are registered at once", len(r.mem))
		}
	}
}

func (p *parted) idle(t *testing.T) {
	t.Helper()
	unused(t, p.from)
}

// unused checks that no use of registered memory remains.
func unused(t *testing.T, l *Link) {
	t.Helper()
	for _, u := range l.regs.uses {
		if u.refs != 0 {
			t.Fatalf("a use is left: %+v", u)
		}
	}
}

// TestParted checks that a large operation registers its local memory part by part, and
// releases each part.
func TestParted(t *testing.T) {
	p := newParted(t)
	local := link.Ref{Region: arenaRegion, Off: partsAt, Len: partsN}
	for token, write := range map[uint64]bool{1: true, 2: false} {
		mine := p.arena[partsAt : partsAt+partsN]
		err := error(nil)
		if write {
			err = p.from.Write(0, token, local, p.key, 0)
		} else {
			rng := rand.New(rand.NewPCG(2, token))
			for i := range p.theirs {
				p.theirs[i] = byte(rng.Uint32())
			}
			err = p.from.Read(0, token, local, p.key)
		}
		if err != nil {
			t.Fatal(err)
		}
		for over := false; !over; _, over = p.sink.ends[token] {
			p.step(t)
		}
		if err := p.sink.ends[token]; err != nil || !bytes.Equal(mine, p.theirs) {
			t.Fatalf("write %v: %v, or other bytes", write, err)
		}
		p.idle(t)
	}
	mine, _ := p.from.regs.chooser.Caches()
	if least := uint64(partsN / partMax); mine.Registrations < least {
		t.Errorf("%d registrations, want at least %d", mine.Registrations, least)
	}
}

// TestPartRefused checks that if the device has no room for a part in the middle, the
// operation ends with that error after its posted requests, and the connection continues.
func TestPartRefused(t *testing.T) {
	p := newParted(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for token := uint64(1); token <= 40; token++ {
		local := link.Ref{Region: arenaRegion, Off: rng.Uint64N(arenaBytes - partsN), Len: partsN}
		err := p.from.Write(0, token, local, p.key, 0)
		if errors.Is(err, gather.ErrNoRoom) {
			continue // the cache does not try again yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for left := rng.IntN(300); ; left-- {
			if left == 0 {
				p.device.limit = 1
			}
			p.step(t)
			if _, over := p.sink.ends[token]; over {
				break
			}
		}
		if err := p.sink.ends[token]; !errors.Is(err, gather.ErrNoRoom) && err != nil {
			t.Fatal(err)
		}
		p.idle(t)
		p.device.limit = 0
		for range 2000 { // until the cache tries again
			if k, err := p.from.Register(link.Ref{Region: arenaRegion, Len: 100}); err == nil {
				p.from.Deregister(k)
			}
			if n, err := p.from.regs.use(link.Ref{Region: arenaRegion, Len: 100}); err == nil {
				p.from.regs.releaseUse(n)
			}
		}
	}
	refused := 0
	for _, err := range p.sink.ends {
		if err != nil {
			refused++
		}
	}
	if refused == 0 || refused == len(p.sink.ends) {
		t.Errorf("%d of %d were refused", refused, len(p.sink.ends))
	}
}

// TestPartsBroken checks that a connection that is lost in the middle leaves no part in
// use.
func TestPartsBroken(t *testing.T) {
	for polls := range 40 {
		p := newParted(t)
		if err := p.from.Write(0, 1, link.Ref{Region: arenaRegion, Off: partsAt, Len: partsN}, p.key, 0); err != nil {
			t.Fatal(err)
		}
		for range polls {
			p.step(t)
		}
		p.from.Forget(0)
		for over := false; !over; _, over = p.sink.ends[1] {
			p.step(t)
		}
		p.idle(t)
	}
}

// TestTurnIsBounded checks that a turn registers at most the link's bound for keys of
// peers, and for local operations, however much is asked for, and that everything is
// registered in the end.
func TestTurnIsBounded(t *testing.T) {
	p := newParted(t)
	const n = 16
	for i := range uint64(n) {
		if err := p.from.Write(0, i+1, link.Ref{Region: arenaRegion, Off: i * 3 * partMax, Len: 2*partMax - 100}, p.key, 0); err != nil {
			t.Fatal(err)
		}
	}
	asked := uint64(0) // bytes of the keys
	turns := 0
	for ; len(p.sink.ends) < n || asked < n; turns++ {
		before := p.registered()
		for ; asked < n; asked++ {
			if _, err := p.from.Register(link.Ref{Region: arenaRegion, Off: asked * 3 * partMax, Len: partMax - 100}); errors.Is(err, link.ErrLater) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		p.step(t)
		if got := p.registered() - before; got > 3*partMax { // of a turn, and of the Poll that begins the next one
			t.Fatalf("%d bytes are registered from one turn to the next", got)
		}
	}
	for token, err := range p.sink.ends {
		if err != nil {
			t.Errorf("operation %d: %v", token, err)
		}
	}
	p.idle(t)
	if turns < n {
		t.Errorf("%d keys in %d turns", n, turns)
	}
}

// registered returns the sum of all bytes that were registered.
func (p *parted) registered() uint64 {
	mine, peers := p.from.regs.chooser.Caches()
	return (mine.PinnedPages + peers.PinnedPages) << 12
}
