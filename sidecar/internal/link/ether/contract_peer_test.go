package ether_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// The tests of this file connect a Link with a peer that was written from PROTOCOL.md §2.4
// alone, without a look at the Link. The clock of the Link is the test's, so that no timer
// of the Link depends on the load of the machine.

// Kinds of packets (§2.4).
const (
	kindStream = 1
	kindAck    = 2
	kindProbe  = 3
	kindEcho   = 4
	kindEnd    = 5
)

const (
	headBytes   = 16
	tagBytes    = 16
	prefixBytes = 24
	ahead       = 256 // packets after the first missing one that are accepted
	history     = 960 // a counter as far below the highest one is old
	// The contract does not say which limit holds before the first prefix has come, nor that a
	// limit never decreases. The Link begins with this one and ignores lower ones.
	firstLimit = 33
)

const (
	ms       = int64(time.Millisecond)
	patience = 5 * time.Second // of a test for something that has to come
)

var le = binary.LittleEndian

// direction seals or opens the packets of one direction.
type direction struct {
	aead    cipher.AEAD
	iv      []byte
	encrypt bool
}

// newDirection derives the key of the packets of the side whose secret is sender.
func newDirection(t testing.TB, sender, receiver []byte, encrypt bool) direction {
	t.Helper()
	secret := append(bytes.Clone(sender), receiver...)
	b, err := hkdf.Key(sha256.New, secret, nil, "outrigger ether 1", 28)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(b[:16])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return direction{aead, b[16:], encrypt}
}

func (d *direction) nonce(counter uint64) []byte {
	n := bytes.Clone(d.iv)
	le.PutUint64(n[4:], le.Uint64(n[4:])^counter)
	return n
}

// seal returns a packet.
func (d *direction) seal(session uint32, kind uint8, counter uint64, body []byte) []byte {
	p := make([]byte, headBytes, headBytes+len(body)+tagBytes)
	le.PutUint32(p, session)
	p[4] = kind
	le.PutUint64(p[8:], counter)
	if d.encrypt {
		return d.aead.Seal(p, d.nonce(counter), body, p[:headBytes])
	}
	p = append(p, body...)
	return d.aead.Seal(p, d.nonce(counter), nil, p)
}

// open returns the body of a packet.
func (d *direction) open(p []byte) ([]byte, error) {
	n := d.nonce(le.Uint64(p[8:]))
	if d.encrypt {
		return d.aead.Open(nil, n, p[headBytes:], p[:headBytes])
	}
	end := len(p) - tagBytes
	_, err := d.aead.Open(nil, n, p[end:], p[:end])
	return p[headBytes:end], err
}

// prefix is the prefix of a stream packet or an ack.
type prefix struct {
	number, next uint32
	bits         uint64
	limit        uint32
}

func (x prefix) encode() []byte {
	b := make([]byte, prefixBytes)
	le.PutUint32(b, x.number)
	le.PutUint32(b[4:], x.next)
	le.PutUint64(b[8:], x.bits)
	le.PutUint32(b[16:], x.limit)
	le.PutUint32(b[20:], 1200) // the largest body of this side
	return b
}

// packet is a packet of the Link that authenticates.
type packet struct {
	prefix

	kind    uint8
	counter uint64
	size    int    // of the UDP payload
	body    []byte // behind the prefix, if the kind has one
	at      int64  // the test's time
}

// frame is a frame in either direction.
type frame struct {
	head    wire.Header
	payload []byte
	socket  bool // the payload is in the data connection
}

// peer is the other side of the Link's connection.
type peer struct {
	asked   int // acks that ask for a larger limit
	t       testing.TB
	fd      int // of UDP
	port    uint16
	session uint32
	secret  []byte
	encrypt bool
	probes  bool // this side is the lower-numbered one

	link        *unix.SockaddrInet4 // address of the Link
	linkSession uint32
	out, in     direction
	counter     uint64 // of the last packet to the Link
	path        int    // probes of at most this size are answered
	echoes      map[uint32]int
	data        int // the data connection

	seen      map[uint64]bool // counters of the Link
	highest   uint64
	log       []packet          // packets of the Link since the last call of take
	bodies    map[uint32][]byte // bodies of the stream
	most      uint32            // highest number that the Link has sent
	next      uint32            // first missing number of the stream of the Link
	announced uint32            // highest first missing number that was sent to the Link
	limit     uint32            // highest limit that was sent to the Link
	manual    bool              // nothing is acknowledged by itself
	owed      bool              // an acknowledgement is due
	pending   []*frame          // frames whose payload has not come
	got       int               // bytes of the payload of pending[0]
	frames    []*frame          // frames of the Link, in order
	time      func() int64
	datagrams uint64            // sent
	prefixes  uint64            // packets with a prefix that came
	lose      func(packet) bool // whether a packet of the Link with a prefix is lost; nil: none
	sent      map[uint32]bool   // numbers of this side's stream
	told      prefix            // latest that the Link has told
}

func newPeer(t testing.TB, encrypt, probes bool, now func() int64) *peer {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20) // as much as the system permits
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{
		t: t, fd: fd, port: uint16(name.(*unix.SockaddrInet4).Port), session: 0x01020304, secret: make([]byte, 32),
		encrypt: encrypt, probes: probes, path: 8952, echoes: map[uint32]int{}, data: -1, seen: map[uint64]bool{},
		bodies: map[uint32][]byte{}, sent: map[uint32]bool{}, next: 1, announced: 1, limit: firstLimit, time: now,
	}
	_, _ = rand.Read(p.secret) // never fails
	return p
}

// offer returns the offer, with bytes of a later release behind it.
func (p *peer) offer() []byte {
	b := make([]byte, 40, 44)
	b[0] = 1
	if p.encrypt {
		b[1] = 1
	}
	le.PutUint16(b[2:], p.port)
	le.PutUint32(b[4:], p.session)
	copy(b[8:], p.secret)
	return append(b, 1, 2, 3, 4)
}

// meet reads the offer of the Link.
func (p *peer) meet(b []byte) {
	p.t.Helper()
	if len(b) < 40 || b[0] != 1 || (b[1]&1 != 0) != p.encrypt || le.Uint32(b[4:]) == 0 {
		p.t.Fatalf("the offer is %x", b)
	}
	p.linkSession = le.Uint32(b[4:])
	p.out = newDirection(p.t, p.secret, b[8:40], p.encrypt)
	p.in = newDirection(p.t, b[8:40], p.secret, p.encrypt)
	if p.probes {
		p.link = &unix.SockaddrInet4{Port: int(le.Uint16(b[2:])), Addr: [4]byte{127, 0, 0, 1}}
	}
}

// raw sends one datagram.
func (p *peer) raw(b []byte) {
	p.t.Helper()
	if err := unix.Sendto(p.fd, b, 0, p.link); err != nil {
		p.t.Fatal(err)
	}
	if len(b) > 0 { // the Link does not count an empty one
		p.datagrams++
	}
}

// send sends a packet with the next counter, and returns it.
func (p *peer) send(kind uint8, body []byte) []byte {
	p.t.Helper()
	p.counter++
	b := p.out.seal(p.linkSession, kind, p.counter, body)
	p.raw(b)
	return b
}

// probe sends a probe of each size.
func (p *peer) probe(sizes ...int) {
	p.t.Helper()
	for _, n := range sizes {
		p.send(kindProbe, make([]byte, n-headBytes-tagBytes))
	}
}

// ack acknowledges all before next, and the packets of bits.
func (p *peer) ack(next uint32, bits uint64, limit uint32) {
	p.t.Helper()
	p.send(kindAck, p.note(prefix{next: next, bits: bits, limit: limit}).encode())
}

// note remembers what the Link is told.
func (p *peer) note(x prefix) prefix {
	if x.next-p.announced < 1<<31 {
		p.announced = x.next
	}
	if x.limit-p.limit < 1<<31 {
		p.limit = x.limit
	}
	return x
}

// stream sends packet number with frames. Payloads in the data connection are written by
// the caller.
func (p *peer) stream(number uint32, frames ...*frame) {
	p.t.Helper()
	p.sent[number] = true
	b := p.note(prefix{number: number, next: p.next, bits: p.bits(), limit: p.next + ahead}).encode()
	for _, f := range frames {
		b = append(b, f.encode()...)
		if !f.socket {
			b = append(b, f.payload...)
		}
	}
	p.send(kindStream, b)
}

func (f *frame) encode() []byte {
	var b [wire.HeaderBytes]byte
	f.head.Encode(&b)
	if f.socket {
		b[3] |= 1
	}
	return b[:]
}

// bits returns which packets behind next have come.
func (p *peer) bits() (bits uint64) {
	for i := range uint32(64) {
		if p.bodies[p.next+i+1] != nil {
			bits |= 1 << i
		}
	}
	return bits
}

// turn takes all that the Link has sent.
func (p *peer) turn() (work int) {
	p.t.Helper()
	buf := make([]byte, 65536)
	for {
		n, from, err := unix.Recvfrom(p.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			break
		}
		p.datagram(bytes.Clone(buf[:n]), from.(*unix.SockaddrInet4))
		work++
	}
	work += p.process()
	if p.owed && !p.manual {
		p.owed = false
		p.ack(p.next, p.bits(), p.next+ahead)
	}
	return work
}

// datagram checks and handles one datagram of the Link.
func (p *peer) datagram(b []byte, from *unix.SockaddrInet4) {
	p.t.Helper()
	if len(b) < headBytes+tagBytes || le.Uint32(b) != p.session || b[5] != 0 || b[6] != 0 || b[7] != 0 {
		p.t.Fatalf("the Link has sent %x", b)
	}
	body, err := p.in.open(b)
	if err != nil {
		p.t.Fatalf("a packet of kind %d: %v", b[4], err)
	}
	x := packet{kind: b[4], counter: le.Uint64(b[8:]), size: len(b), body: body, at: p.time()}
	if x.counter == 0 || p.seen[x.counter] {
		p.t.Errorf("counter %d came again", x.counter)
	}
	p.seen[x.counter] = true
	p.highest = max(p.highest, x.counter)
	if p.link == nil {
		p.link = from
	}
	if from.Port != p.link.Port || from.Addr != p.link.Addr {
		p.t.Errorf("a packet came from %v, want %v", from, p.link)
	}
	p.packet(x)
}

// packet handles a packet that authenticates.
func (p *peer) packet(x packet) {
	p.t.Helper()
	switch x.kind {
	case kindProbe:
		if bytes.Count(x.body, []byte{0}) != len(x.body) {
			p.t.Error("a probe has other bytes than zeros")
		}
		if x.size <= p.path {
			p.send(kindEcho, le.AppendUint32(nil, uint32(x.size)))
		}
	case kindEcho:
		if len(x.body) != 4 {
			p.t.Fatalf("an echo has %d bytes", len(x.body))
		}
		p.echoes[le.Uint32(x.body)]++
	case kindStream, kindAck:
		p.prefixed(&x)
	case kindEnd:
		if len(x.body) != 0 {
			p.t.Errorf("an end has %d bytes", len(x.body))
		}
	default:
		p.t.Errorf("a packet has the kind %d", x.kind)
	}
	p.log = append(p.log, x)
}

// prefixed handles a packet with a prefix.
func (p *peer) prefixed(x *packet) {
	p.t.Helper()
	b := x.body
	if len(b) < prefixBytes || le.Uint32(b[20:]) < 1000 || le.Uint32(b[20:]) > 9000 { // the largest body of the Link
		p.t.Fatalf("kind %d has the prefix %x", x.kind, b)
	}
	x.prefix = prefix{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint32(b[16:])}
	x.body = b[prefixBytes:]
	p.prefixes++
	p.tells(x.prefix)
	if x.kind == kindStream && x.number > p.most {
		if x.number != p.most+1 {
			p.t.Errorf("packet %d came after %d", x.number, p.most)
		}
		p.most = x.number
	}
	if p.lose != nil && p.lose(*x) {
		return
	}
	if x.kind == kindAck {
		if x.number > 1 || len(x.body) != 0 {
			p.t.Errorf("an ack has number %d and %d bytes", x.number, len(x.body))
		}
		p.asked += int(x.number)
		return
	}
	if x.size > p.path {
		p.t.Errorf("packet %d has %d bytes, although no probe of more than %d came back", x.number, x.size, p.path)
	}
	if x.number-p.limit < 1<<31 {
		p.t.Errorf("packet %d was sent, although there is no room from %d on", x.number, p.limit)
	}
	if d := x.number - p.announced; d > ahead && d < 1<<31 {
		p.t.Errorf("packet %d was sent, although %d is missing", x.number, p.announced)
	}
	p.arrive(x)
}

// tells checks what the Link says of the stream of this side.
func (p *peer) tells(x prefix) {
	p.t.Helper()
	if x.next < p.told.next || x.limit < p.told.limit || x.limit-x.next > ahead {
		p.t.Errorf("the Link has told %+v after %+v", x, p.told)
	}
	p.told = x
	for n := uint32(1); n < x.next; n++ {
		if !p.sent[n] {
			p.t.Errorf("the Link has acknowledged %d, which was not sent", n)
		}
	}
	for i := range uint32(64) {
		if x.bits>>i&1 != 0 && !p.sent[x.next+i+1] {
			p.t.Errorf("the Link has acknowledged %d, which was not sent", x.next+i+1)
		}
	}
}

// arrive takes a packet of the stream.
func (p *peer) arrive(x *packet) {
	p.t.Helper()
	p.owed = true
	if old := p.bodies[x.number]; old != nil {
		if !bytes.Equal(old, x.body) {
			p.t.Errorf("packet %d came again with other bytes", x.number)
		}
		return
	}
	p.bodies[x.number] = append([]byte{}, x.body...)
	for ; p.bodies[p.next] != nil; p.next++ {
		p.parse(p.bodies[p.next])
	}
}

// parse takes the frames of one packet.
func (p *peer) parse(b []byte) {
	p.t.Helper()
	if len(b) == 0 {
		p.t.Error("a stream packet has no frames")
	}
	for len(b) > 0 {
		if len(b) < wire.HeaderBytes {
			p.t.Fatalf("%d bytes are behind the frames of a packet", len(b))
		}
		h := [wire.HeaderBytes]byte(b)
		f := &frame{socket: h[3]&1 != 0}
		h[3] &^= 1
		if err := f.head.Decode(&h); err != nil {
			p.t.Fatal(err)
		}
		b = b[wire.HeaderBytes:]
		if n := int(f.head.Length); f.socket {
			f.payload = make([]byte, n)
		} else {
			if len(b) < n {
				p.t.Fatalf("a frame of %d bytes continues behind its packet", n)
			}
			f.payload, b = b[:n], b[n:]
		}
		p.pending = append(p.pending, f)
	}
}

// process completes frames, in their order.
func (p *peer) process() (work int) {
	p.t.Helper()
	for len(p.pending) > 0 {
		f := p.pending[0]
		for f.socket && p.got < len(f.payload) {
			n, err := unix.Read(p.data, f.payload[p.got:])
			if err != nil || n == 0 {
				return work
			}
			p.got += n
			work++
		}
		p.got = 0
		p.frames = append(p.frames, f)
		p.pending = p.pending[1:]
		work++
	}
	return work
}

// take returns the packets of some kinds that have come since the last call, and drops the
// others.
func (p *peer) take(kinds ...uint8) (list []packet) {
	for _, x := range p.log {
		if bytes.IndexByte(kinds, x.kind) >= 0 {
			list = append(list, x)
		}
	}
	p.log = nil
	return list
}
