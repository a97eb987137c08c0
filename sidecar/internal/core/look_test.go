package core

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// looks are two cores over a link that places in order and notifies, and their engines. An
// engine sleeps when a turn finds nothing. Frames, notifications and the ends of its own
// operations wake it; writes into its memory do not.
type looks struct {
	t     *testing.T
	rng   *rand.Rand
	now   int64
	cores [2]*Core
	ports [2]*lookPort
	keys  map[uint64]keyed
}

// lookPort is the end of one core. Frames and casts are delivered in one order, and writes in
// another: either may overtake the other.
type lookPort struct {
	lone
	l      *looks
	self   int
	frames []func()
	writes []func()
	ends   []func()
	plain  int // writes without a notification
	told   int // Looks sent
	casts  int
	full   bool // the link takes no frame before it wakes the engine
	fulls  int
	tokens []uint64 // writes that have not ended
	idle   bool
	asleep bool
	sleeps int
}

func (p *lookPort) Register(_ link.Peer, ref link.Ref) (link.Key, error) {
	k := uint64(len(p.l.keys) + 1)
	p.l.keys[k] = keyed{nil, ref}
	return link.Key{Key: k}, nil
}

// write returns a function that does what happens at the peer when a write is in place.
func (p *lookPort) write(peer link.Peer, src []byte, dst link.Key, notify uint64) func() {
	data, l := bytes.Clone(src), p.l
	if notify == 0 {
		p.plain++
	}
	return func() {
		k, there := l.keys[dst.Key], l.ports[peer]
		copy(there.Bytes(k.ref)[dst.Addr:], data)
		if notify != 0 {
			there.wake()
			if err := l.cores[peer].RemoteWritten(l.now, link.Peer(p.self), notify); err != nil {
				l.t.Error(err)
			}
		}
	}
}

func (p *lookPort) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	place := p.write(peer, p.Bytes(src), dst, notify)
	p.tokens = append(p.tokens, token)
	p.writes = append(p.writes, func() {
		place()
		p.ends = append(p.ends, func() { p.end(nil) })
	})
	return nil
}

// end reports the end of the oldest write.
func (p *lookPort) end(err error) {
	token := p.tokens[0]
	p.tokens = p.tokens[1:]
	p.wake()
	p.l.cores[p.self].RemoteDone(p.l.now, link.Peer(1-p.self), token, err)
}

// Cast implements link.Caster.
func (p *lookPort) Cast(peer link.Peer, data []byte, dst link.Key, notify uint64) bool {
	if p.l.rng.IntN(3) == 0 {
		return false
	}
	p.casts++
	p.frames = append(p.frames, p.write(peer, data, dst, notify))
	return true
}

func (p *lookPort) Post(peer link.Peer, frames []*link.Frame) int {
	if p.full = p.full || p.l.rng.IntN(8) == 0; p.full {
		p.fulls++
		return 0
	}
	n := 1 + p.l.rng.IntN(len(frames))
	for _, f := range frames[:n] {
		if f.Head.Type == wire.Look {
			p.told++
		}
		h, payload := f.Head, bytes.Clone(f.Inline[:min(f.Head.Length, link.InlineMax)])
		p.frames = append(p.frames, func() {
			p.l.ports[peer].wake()
			if err := p.l.cores[peer].Deliver(p.l.now, link.Peer(p.self), &h, payload); err != nil {
				p.l.t.Errorf("pod %d refuses %v: %v", peer, h.Type, err)
			}
		})
	}
	return n
}

func (p *lookPort) wake() { p.idle, p.asleep = false, false }

// next runs the first function of list.
func next(list *[]func()) bool {
	if len(*list) == 0 {
		return false
	}
	f := (*list)[0]
	*list = (*list)[1:]
	f()
	return true
}

func newLooks(t *testing.T, seed uint64) *looks {
	t.Helper()
	l := &looks{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: 1, keys: map[uint64]keyed{}}
	for i := range l.cores {
		l.ports[i] = &lookPort{lone: lone{regions: map[link.Region][]byte{}}, l: l, self: i}
		c, err := New(Config{Self: link.Peer(i), PodOf: []int32{0, 1}, Pods: 2, Seed: 7, Caster: l.ports[i]}, l.ports[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Attach(1, 0, uint32(i), shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		l.cores[i] = c
	}
	l.connect()
	return l
}

func (l *looks) connect() {
	for i, c := range l.cores {
		c.LinkUp(l.now, link.Peer(1-i), link.Caps{Register: true, Write: true, InOrder: true, Ordered: true, Notify: true})
		l.ports[i].wake()
	}
}

// reconnect loses everything in flight.
func (l *looks) reconnect() {
	for i, c := range l.cores {
		p := l.ports[i]
		p.frames, p.writes, p.ends, p.full = nil, nil, nil, false
		for len(p.tokens) > 0 {
			p.end(link.ErrBroken)
		}
		c.LinkDown(l.now, link.Peer(1-i), link.ErrBroken)
	}
	l.connect()
}

// turn runs a turn of an engine that is awake.
func (l *looks) turn(i int) {
	c, p := l.cores[i], l.ports[i]
	more := c.Flush(l.now, p)
	work := c.PollMemory(l.now)
	c.Tick(l.now)
	p.idle = work == 0 && !c.Flush(l.now, p) && !more
}

// rest does what an engine does after a turn that has found nothing.
func (l *looks) rest(i int) {
	if c := l.cores[i]; !c.PrepareSleep() && !c.Pending() {
		l.ports[i].asleep = true
		l.ports[i].sleeps++
	} else {
		l.ports[i].idle = false
	}
}

func (l *looks) send(i int) {
	l.ports[i].wake()
	d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: uint32(1 - i), Class: shm.ClassInline}
	d.SetInline([]byte("hello"))
	if err := l.cores[i].Submit(l.now, 0, &d); err != nil {
		l.t.Fatal(err)
	}
}

// step makes one random event happen.
func (l *looks) step(sends, rests bool) {
	l.now += l.rng.Int64N(20_000)
	i := l.rng.IntN(2)
	p := l.ports[i]
	switch l.rng.IntN(7) {
	case 0:
		if p.full {
			p.full = false
			p.wake()
		}
	case 1:
		next(&p.frames)
	case 2:
		next(&p.writes)
	case 3:
		next(&p.ends)
	case 4:
		if rests && p.idle && !p.asleep {
			l.rest(i)
		}
	case 5:
		if sends && l.cores[i].peers[1-i].Out().Last() < 2000 {
			l.send(i)
		}
	default:
		if !p.asleep || l.cores[i].Polled() {
			l.turn(i)
		}
	}
}

// beSilent runs turns without a message, and returns how many cores do not visit their rings after
// them. What is under way stays so.
func (l *looks) beSilent() (silent int) {
	for range 3 * silence.Turns {
		l.now += 1000
		for i := range l.cores {
			l.turn(i)
		}
	}
	for i, c := range l.cores {
		l.ports[i].wake()
		before := c.channel.Stats().RingVisits
		l.turn(i)
		l.turn(i)
		if c.channel.Stats().RingVisits-before < 2 {
			silent++
		}
	}
	return silent
}

var errLate = errors.New("not all was taken")

// end runs steps, without a timer that would wake an engine, until both engines sleep, and
// checks that all messages have arrived.
func (l *looks) end() error {
	for range 200_000 {
		l.step(false, true)
		over := true
		for i, c := range l.cores {
			p := l.ports[i]
			over = over && p.asleep && !p.full && !c.Polled() && len(p.frames)+len(p.writes)+len(p.ends) == 0
		}
		if !over {
			continue
		}
		for i, c := range l.cores {
			if c.peers[1-i].Arrived() != l.cores[1-i].peers[i].Out().Last() {
				return errLate
			}
		}
		return nil
	}
	return errors.New("they do not come to rest")
}

// TestNobodySleepsBesideAMessage checks that an engine is woken for writes without a
// notification, whenever it goes to sleep and however frames and writes overtake each other.
func TestNobodySleepsBesideAMessage(t *testing.T) {
	plain, told, sleeps, casts, fulls, silent := 0, 0, 0, 0, 0, 0
	for seed := range uint64(60) {
		l := newLooks(t, seed)
		for burst := range 10 {
			for range 1200 { // an engine that always has something to do does not sleep
				l.step(true, false)
			}
			if l.rng.IntN(3) == 0 {
				silent += l.beSilent()
			}
			for range l.rng.IntN(200) {
				l.step(true, true)
			}
			if l.rng.IntN(3) == 0 {
				l.reconnect()
			}
			if err := l.end(); err != nil {
				t.Fatalf("seed %d, burst %d: %v", seed, burst, err)
			}
		}
		for _, p := range l.ports {
			plain, told, sleeps, casts, fulls = plain+p.plain, told+p.told, sleeps+p.sleeps, casts+p.casts, fulls+p.fulls
		}
	}
	t.Logf("%d writes without a notice, %d Looks, %d sleeps, %d casts, %d times a link was full", plain, told, sleeps, casts, fulls)
	if min(plain, told, casts, fulls, silent) == 0 {
		t.Error("nothing was written without a notice, or cast, or no link was ever full, or no peer silent")
	}
}
