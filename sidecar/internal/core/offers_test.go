package core

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// duo is two cores of one rank each that are joined by a link that performs each operation at
// once.
type duo struct {
	t     *testing.T
	now   int64
	cores [2]*Core
	ports [2]*duoPort
	types []string // types of posted frames, without acknowledgements
	guard uint8    // guard of the last offer
	keys  map[uint64]keyed
	made  uint64 // number of keys made
}

type keyed struct {
	port *duoPort
	ref  link.Ref
}

type duoPort struct {
	lone
	duo    *duo
	self   int
	ended  []shm.Descriptor
	later  []func()
	refuse int      // number of remote operations that fail
	most   int      // most registrations in a turn; 0: any number
	turn   int      // registrations made in this turn
	alone  link.Ref // memory that is registered only first in a turn
	deny   int      // number of the registration that is refused
	slow   bool
	parked []func() // remote operations, while slow is set
	still  bool     // writes and completions are only recorded
	token  uint64   // token of the last write, while still is set
}

// Bytes implements Ports. It allocates a region at its first use.
func (p *duoPort) Bytes(r link.Ref) []byte {
	if p.regions[r.Region] == nil {
		p.regions[r.Region] = make([]byte, 16<<20)
	}
	return p.lone.Bytes(r)
}

func (p *duoPort) Complete(_ SessionID, d *shm.Descriptor) {
	if !p.still {
		p.ended = append(p.ended, *d)
	}
}

func (p *duoPort) Expose(peer link.Peer, ref link.Ref) (link.Key, error) {
	return p.Register(peer, ref)
}

func (p *duoPort) Register(_ link.Peer, ref link.Ref) (link.Key, error) {
	if p.most > 0 && p.turn >= p.most || p.turn > 0 && ref == p.alone {
		return link.Key{}, link.ErrLater
	}
	if p.turn++; p.turn == p.deny {
		return link.Key{}, errors.New("no room")
	}
	p.duo.made++
	k := link.Key{Key: p.duo.made}
	p.duo.keys[k.Key] = keyed{p, ref}
	return k, nil
}

func (p *duoPort) Deregister(_ link.Peer, k link.Key) { delete(p.duo.keys, k.Key) }
func (p *duoPort) Release(_ link.Peer, k link.Key)    { delete(p.duo.keys, k.Key) }

func (p *duoPort) Read(_ link.Peer, token uint64, dst link.Ref, src link.Key) error {
	p.start(token, dst, src, 0, func(mine, theirs []byte) { copy(mine, theirs) })
	return nil
}

func (p *duoPort) Write(_ link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	if p.token = token; p.still {
		return nil
	}
	p.start(token, src, dst, notify, func(mine, theirs []byte) { copy(theirs, mine) })
	return nil
}

func (p *duoPort) start(token uint64, mine link.Ref, theirs link.Key, notify uint64, move func(mine, theirs []byte)) {
	d, peer := p.duo, 1-p.self
	list := &p.later
	if p.slow {
		list = &p.parked
	}
	*list = append(*list, func() {
		k, ok := d.keys[theirs.Key]
		if !ok {
			d.cores[p.self].RemoteDone(d.now, link.Peer(peer), token, link.ErrKey)
			return
		}
		if p.refuse > 0 {
			p.refuse--
			d.cores[p.self].RemoteDone(d.now, link.Peer(peer), token, link.ErrBroken)
			return
		}
		move(p.Bytes(mine), k.port.Bytes(k.ref)[theirs.Addr:][:mine.Len])
		if notify != 0 {
			if err := d.cores[peer].RemoteWritten(d.now, link.Peer(p.self), notify); err != nil {
				d.t.Error(err)
			}
		}
		d.cores[p.self].RemoteDone(d.now, link.Peer(peer), token, nil)
	})
}

func (p *duoPort) Post(_ link.Peer, frames []*link.Frame) int {
	for _, f := range frames {
		if t := f.Head.Type; t != wire.Ack && t != wire.Heartbeat && t != wire.Ring {
			p.duo.types = append(p.duo.types, t.String())
		}
		payload := bytes.Clone(f.Inline[:min(f.Head.Length, link.InlineMax)])
		if f.Payload.Region != RegionNone {
			payload = bytes.Clone(p.Bytes(f.Payload))
		}
		if f.Head.Type == wire.Ready {
			var body wire.ReadyBody
			if err := body.Decode(payload); err != nil {
				p.duo.t.Error(err)
			}
			p.duo.guard = body.Guard
		}
		h := f.Head
		p.later = append(p.later, func() {
			if err := p.duo.cores[1-p.self].Deliver(p.duo.now, link.Peer(p.self), &h, payload); err != nil {
				p.duo.t.Errorf("pod %d refuses %v: %v", 1-p.self, h.Type, err)
			}
		})
	}
	return len(frames)
}

func newDuo(t *testing.T, protocol rendezvous.Protocol, caps link.Caps) *duo {
	t.Helper()
	d := &duo{t: t, now: 1, keys: map[uint64]keyed{}}
	for i := range d.cores {
		d.ports[i] = &duoPort{lone: lone{regions: map[link.Region][]byte{}}, duo: d, self: i}
		c, err := New(Config{Self: link.Peer(i), PodOf: []int32{0, 1}, Pods: 2, Rendezvous: protocol, FastPeers: -1, Seed: 7}, d.ports[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Attach(1, 0, uint32(i), shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 4 << 20}); err != nil {
			t.Fatal(err)
		}
		d.cores[i] = c
	}
	for i, c := range d.cores {
		c.LinkUp(1, link.Peer(1-i), caps)
	}
	d.run()
	return d
}

// run runs both cores until nothing is left to do.
func (d *duo) run() {
	for busy := true; busy; {
		busy = false
		d.now++
		for i, c := range d.cores {
			c.Flush(d.now, d.ports[i])
			later := d.ports[i].later
			d.ports[i].later = nil
			for _, f := range later {
				busy = true
				f()
			}
			c.PollMemory(d.now)
		}
	}
}

const duoBytes = 100_000

func (d *duo) submit(pod int, x shm.Descriptor) {
	d.t.Helper()
	if err := d.cores[pod].Submit(d.now, 0, &x); err != nil {
		d.t.Fatal(err)
	}
}

// duoMessage returns a descriptor of duoBytes at the n-th place of the arena.
func duoMessage(op shm.Op, req, peer uint32, n int) shm.Descriptor {
	x := shm.Descriptor{Op: op, Req: req, Peer: peer, Tag: 5, Class: shm.ClassArena}
	x.SetBody(uint64(n*duoBytes), duoBytes, 0, 0)
	return x
}

func (d *duo) arena(pod, n int) []byte {
	return d.ports[pod].Bytes(link.Ref{Region: RegionFirst + 1, Off: uint64(n * duoBytes), Len: duoBytes})
}

// TestMessagesOfProtocols counts the control messages of a large message (paper
// 001, figure 3).
func TestMessagesOfProtocols(t *testing.T) {
	caps := link.Caps{Register: true, Read: true, Write: true, InOrder: true}
	for _, x := range []struct {
		protocol rendezvous.Protocol
		zeros    bool // the message ends with a zero
		frames   string
	}{
		{rendezvous.GetCQE, false, "rts fin"},
		{rendezvous.Get, false, "rts fin"},
		{rendezvous.RPut, false, "rts pull written"},
		{rendezvous.Stream, false, "rts pull data fin"},
		{rendezvous.Put, false, "ready"},
		{rendezvous.Put, true, "ready"},
		{rendezvous.PutNR, false, "ready"},
		{rendezvous.PutNR, true, "ready written"},
	} {
		d := newDuo(t, x.protocol, caps)
		d.types = nil
		if !x.zeros {
			for i := range d.arena(0, 0) {
				d.arena(0, 0)[i] = byte(i%250 + 1)
			}
		}
		d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
		d.run()
		d.submit(0, duoMessage(shm.OpSend, 4, 1, 0))
		d.run()
		if got := strings.Join(d.types, " "); got != x.frames {
			t.Errorf("protocol %v, zeros %v: %q, want %q", x.protocol, x.zeros, got, x.frames)
		}
		if !bytes.Equal(d.arena(0, 0), d.arena(1, 0)) {
			t.Errorf("protocol %v: the message is not what was sent", x.protocol)
		}
		for i, p := range d.ports {
			if len(p.ended) != 1 || p.ended[0].Status != shm.StatusOK || len(d.keys) != 0 {
				t.Errorf("protocol %v: pod %d has %+v, %d keys", x.protocol, i, p.ended, len(d.keys))
			}
		}
	}
}

// TestCollisions counts the frames of messages whose last byte equals the guard of their
// offer, so that their arrival cannot be detected: each costs one frame more, and other
// messages cost none. PutNR's guard is the constant zero, so that every message of zeros costs
// a frame more; Put draws a guard for each offer, so that one of 256 messages does.
func TestCollisions(t *testing.T) {
	const messages = 4096
	caps := link.Caps{Register: true, Write: true, InOrder: true}
	for _, x := range []struct {
		protocol    rendezvous.Protocol
		least, most int
	}{
		{rendezvous.Put, messages / 512, messages / 128},
		{rendezvous.PutNR, messages, messages},
	} {
		d := newDuo(t, x.protocol, caps)
		told := 0
		for n := range messages {
			d.types = nil
			for i, p := range d.ports {
				p.ended = p.ended[:0]
				clear(d.arena(i, 0)[duoBytes-64:])
			}
			d.submit(1, duoMessage(shm.OpRecv, uint32(n%64), 0, 0))
			d.run()
			collides := d.guard == 0
			d.submit(0, duoMessage(shm.OpSend, uint32(n%64), 1, 0))
			d.run()
			want := "ready"
			if collides {
				want = "ready written"
				told++
			}
			if got := strings.Join(d.types, " "); got != want {
				t.Fatalf("%v, message %d of zeros, the guard is %#x: %q, want %q", x.protocol, n, d.guard, got, want)
			}
			if p := d.ports[1]; len(p.ended) != 1 || p.ended[0].Status != shm.StatusOK {
				t.Fatalf("%v, message %d: the receive has come to %+v", x.protocol, n, p.ended)
			}
		}
		t.Logf("%v: %d of %d messages of zeros needed another control message: %.4f, 1/256 is 0.0039", x.protocol, told, messages, float64(told)/messages)
		if told < x.least || told > x.most || uint64(told) != d.cores[0].Stats().Collisions {
			t.Errorf("%v: %d collisions, %d counted; want %d to %d", x.protocol, told, d.cores[0].Stats().Collisions, x.least, x.most)
		}
	}
}

// TestOffersKeepOrder checks that with any mixture of messages each receive that was offered
// gets the message that it would get without offers.
func TestOffersKeepOrder(t *testing.T) {
	caps := link.Caps{Register: true, Write: true, InOrder: true}
	for _, pattern := range []string{"LLLL", "LsLs", "ssLL", "sLsL", "LLsL", "Lsss"} {
		for early := range 3 { // receives that are offered before the first send
			t.Run(fmt.Sprint(pattern, early), func(t *testing.T) {
				d := newDuo(t, rendezvous.Put, caps)
				for n := range early {
					d.submit(1, duoMessage(shm.OpRecv, uint32(n), 0, n))
				}
				d.run()
				want := make([][]byte, len(pattern))
				for n, kind := range pattern {
					b := d.arena(0, n)
					for i := range b {
						b[i] = byte(n + 1)
					}
					x := duoMessage(shm.OpSend, uint32(n), 1, n)
					if kind == 's' {
						x.SetBody(uint64(n*duoBytes), 100, 0, 0)
						b = b[:100]
					}
					want[n] = bytes.Clone(b)
					d.submit(0, x)
					if n < len(pattern)-early {
						d.submit(1, duoMessage(shm.OpRecv, uint32(n+early), 0, n+early))
					}
				}
				d.run()
				for n, w := range want {
					if got := d.arena(1, n); !bytes.Equal(got[:len(w)], w) || len(w) < duoBytes && got[duoBytes-1] != 0 {
						t.Errorf("receive %d of %q has a message of %d, want %d; last byte %#x", n, pattern, got[0], w[0], got[duoBytes-1])
					}
				}
				if len(d.keys) != 0 {
					t.Errorf("%d registrations are left", len(d.keys))
				}
			})
		}
	}
}

// TestCancelOffered checks that an offered receive can be cancelled, and that its memory is
// unchanged then.
func TestCancelOffered(t *testing.T) {
	d := newDuo(t, rendezvous.Put, link.Caps{Register: true, Write: true, InOrder: true})
	d.arena(1, 0)[duoBytes-1] = 0xcc
	d.submit(1, duoMessage(shm.OpRecv, 1, 0, 0))
	d.run()
	d.submit(1, shm.Descriptor{Op: shm.OpCancel, Req: 1})
	d.run()
	if e := d.ports[1].ended; len(e) != 1 || e[0].Status != shm.StatusCancelled {
		t.Fatalf("the receive ended with %+v", e)
	}
	if got := d.arena(1, 0)[duoBytes-1]; got != 0xcc || len(d.keys) != 0 {
		t.Errorf("the last byte is %#x, %d registrations are left", got, len(d.keys))
	}
	d.submit(0, duoMessage(shm.OpSend, 1, 1, 0))
	d.submit(1, duoMessage(shm.OpRecv, 2, 0, 1))
	d.run()
	if e := d.ports[1].ended; len(e) != 2 || e[1].Status != shm.StatusOK {
		t.Errorf("the next message ends with %+v", e)
	}
}

// TestOfferedTakesNoData checks that Data frames are refused for an offered receive, which has
// not requested any. If they were accepted, the receive would end and stay in the queue of
// receives.
func TestOfferedTakesNoData(t *testing.T) {
	d := newDuo(t, rendezvous.Put, link.Caps{Register: true, Write: true, InOrder: true})
	d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
	d.run()
	c := d.cores[1]
	p := &c.peers[0]
	h := wire.Header{Type: wire.Data, Seq: p.Arrived() + 1, Ack: p.Out().Base(), Credit: p.Credit().Granted(), Length: duoBytes, A: c.sessions[0].Request(3).ID}
	if err := c.Deliver(d.now, 0, &h, make([]byte, duoBytes)); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("data for it: %v", err)
	}
	if len(d.ports[1].ended) != 0 {
		t.Errorf("it has ended with %v, and nothing was announced or written", d.ports[1].ended)
	}
	d.submit(0, duoMessage(shm.OpSend, 4, 1, 0))
	d.run()
	if n := len(d.ports[1].ended); n != 1 {
		t.Errorf("it has ended %d times", n)
	}
}
