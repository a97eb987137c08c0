package ether

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// recorder notes the packets that a carrier receives, and receives more.
type recorder struct {
	carrier
	seen [][]byte
	more [][]byte
	from address
}

func (r *recorder) receive() ([]arrival, bool) {
	list, more := r.carrier.receive()
	list = list[:len(list):len(list)]
	for _, a := range list {
		r.from = a.from
		for data := a.data; len(data) > 0; {
			n := min(a.size, len(data))
			r.seen = append(r.seen, bytes.Clone(data[:n]))
			data = data[n:]
		}
	}
	for _, p := range r.more {
		list = append(list, arrival{data: p, size: len(p), from: r.from})
	}
	r.more = nil
	return list, more
}

// TestStrangers sends packets that are forged, copied, of another connection or cut to a
// connection in use, and checks that each is counted and dropped, and that the frames of
// the peer arrive.
func TestStrangers(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		meetStrangers(t, func(bad func(testing.TB, *Link)) *linktest.Pair { return pairs(encrypt, bad)(t) })
	}
}

func meetStrangers(t *testing.T, pair func(bad func(testing.TB, *Link)) *linktest.Pair) {
	t.Helper()
	var b *recorder
	p := pair(func(_ testing.TB, l *Link) {
		b = &recorder{carrier: l.out.carrier}
		l.out.carrier = b
	})
	to := p.B.Link.(*Link)
	x, y := linktest.NewSink(p.A.Memory), linktest.NewSink(p.B.Memory)
	r := rand.New(rand.NewPCG(3, 3))
	frames := mixed(p.A.Memory)
	left := frames
	for y.Frames() < len(frames) {
		left = left[p.A.Link.Post(p.A.Peer, left):]
		p.A.Link.Poll(x)
		for range 3 {
			if len(b.seen) == 0 {
				break
			}
			packet := bytes.Clone(b.seen[r.IntN(len(b.seen))])
			switch r.IntN(4) {
			case 0: // a copy
			case 1:
				packet[r.IntN(len(packet))] ^= 1 << r.IntN(8)
			case 2:
				packet = packet[:r.IntN(len(packet))]
			case 3:
				packet = append(packet, 0)
			}
			b.more = append(b.more, packet)
		}
		p.B.Link.Poll(y)
		if x.DownError() != nil || y.DownError() != nil {
			t.Fatalf("the connection has ended: %v, %v", x, y)
		}
	}
	linktest.Compare(t, p.A.Memory, frames, y)
	if s := to.Stats(); s.Forged == 0 || s.Replayed == 0 || s.Odd == 0 {
		t.Errorf("forged %d, replayed %d, of no connection %d: want some of each", s.Forged, s.Replayed, s.Odd)
	}
}

// TestPeerBreaksTheProtocol checks that a peer that authenticates and breaks the rules of
// the packets ends its connection with ErrProtocol, and nothing else.
func TestPeerBreaksTheProtocol(t *testing.T) {
	header := func(h wire.Header, flags byte) []byte {
		var b [wire.HeaderBytes]byte
		h.Encode(&b)
		b[3] |= flags
		return b[:]
	}
	prefix := func(number, acked, bitmap, limit uint64) []byte {
		b := make([]byte, prefixBytes)
		putPrefix(b, number, acked, bitmap, limit, 1400)
		return b
	}
	data := wire.Header{Type: wire.Data, Seq: 1, Length: 100}
	ask := func(key, address, mask uint64, frag, n uint32) []byte {
		b := make([]byte, askBytes)
		le := binary.LittleEndian
		le.PutUint64(b[8:], key)
		le.PutUint64(b[16:], address)
		le.PutUint64(b[24:], mask)
		le.PutUint32(b[32:], frag)
		le.PutUint32(b[36:], n)
		return b
	}
	for name, c := range map[string]struct {
		body []byte
		want string
		kind byte // 0: kindStream
	}{
		"ask is short":       {make([]byte, 39), "an ask of 39 bytes", kindAsk},
		"ask for nothing":    {ask(1, 0, 0, 1000, 1000), "asks for fragments 0x0 ", kindAsk},
		"ask for too much":   {ask(1, 0, 1, 1000, 1<<20), "asks for fragments 0x1 ", kindAsk},
		"ask behind the end": {ask(1, 0, 1<<63, 1000, 63_000), "asks for fragments 0x8", kindAsk},
		"ask too large":      {ask(1, 0, 1, 60_000, 60_000), "asks for fragments 0x1 of 60000 bytes", kindAsk},
		"ask for zero bytes": {ask(1, 0, 1, 0, 100), "asks for fragments 0x1 of 0 bytes", kindAsk},
		"part is short":      {make([]byte, 7), "a part of 7 bytes", kindPart},
		"denial is long":     {make([]byte, 5), "a denial of 5 bytes", kindDeny},
		"short":              {make([]byte, 10), "has a body of 10 bytes", 0},
		"acknowledges":       {prefix(1, 1000, 0, 257), "acknowledges a packet that was not sent", 0},
		"acknowledges bits":  {prefix(1, 1, 1<<40, 257), "acknowledges a packet that was not sent", 0},
		"half a header":      {append(prefix(1, 1, 0, 257), 1, 2, 3), "ends in a header", 0},
		"no header":          {append(prefix(1, 1, 0, 257), make([]byte, 64)...), "version 0", 0},
		"half a payload":     {append(prefix(1, 1, 0, 257), header(data, 0)...), "ends in a payload", 0},
		"nothing by socket":  {append(prefix(1, 1, 0, 257), header(wire.Header{Type: wire.Ack}, viaSocket)...), "without a payload", 0},
		"frame is too large": {append(prefix(1, 1, 0, 257), header(wire.Header{Type: wire.Data, Seq: 1, Length: wire.FrameMax + 1}, viaSocket)...), "payload of", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairs(false, nil)(t)
			a := p.A.Link.(*Link)
			sink := linktest.NewSink(p.B.Memory)
			l := p.A.Link.(*Link).conns[1]
			a.out.add(l, cmp.Or(c.kind, kindStream), c.body)
			a.out.offer()
			for range 1000 {
				p.B.Link.Poll(sink)
			}
			err := sink.DownError()
			if !errors.Is(err, link.ErrProtocol) || !strings.Contains(err.Error(), c.want) || sink.Frames() > 0 {
				t.Errorf("got %v, want ErrProtocol with %q", sink, c.want)
			}
		})
	}
}

// nowhere is a carrier that loses all.
type nowhere struct{ carrier }

func (nowhere) send(list []batch) int          { return len(list) }
func (nowhere) sendOne(*address, []byte) error { return nil }

// FuzzPacket hands packets with any body to a connection whose peer has authenticated.
func FuzzPacket(f *testing.F) {
	f.Add(make([]byte, prefixBytes+wire.HeaderBytes), byte(kindStream))
	f.Fuzz(func(t *testing.T, raw []byte, kind byte) {
		l := newLink(Config{Peers: 1, Silence: 10e9, Clock: func() int64 { return 1 }}, linktest.NewMemory())
		l.now = 1
		e := l.Prepare(0)
		c := e.c
		c.joined, c.bodyMax = true, 1400
		c.tx, _ = newSealer(&e.secret, &e.secret, false)
		l.conns[0] = c
		l.out.carrier = new(nowhere)
		memory := linktest.NewMemory()
		l.memory = memory
		key, _ := l.Register(memory.NewRegion(10_000))   // never fails
		_ = l.Read(0, 1, memory.NewRegion(100_000), key) // as above
		l.ask()
		sink := linktest.NewSink(linktest.NewMemory())
		for n := 1; len(raw) > 0 && c.lives() && c.pipe.dst == nil; n++ { // several packets of up to 255 bytes
			size := min(int(raw[0])+prefixBytes, len(raw))
			l.authenticated(c, kind, bytes.Clone(raw[:size]), new(address), sink)
			l.answer(c)
			raw = raw[size:]
		}
		if c.rcv.kept > bytesMax+1<<16 {
			t.Errorf("%d bytes are kept", c.rcv.kept)
		}
	})
}
