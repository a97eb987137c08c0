package ether

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The offer of an Endpoint. Offsets in bytes, little-endian:
//
//	0 version u8   1 flags u8: 1 packets are encrypted, 2 a trial follows (trial.go)   2 port u16   4 session u32   8 secret of 32 bytes
//	40 kind of carrier u8   41 hardware address of 6 bytes
//
// Those of earlier releases end behind the secret, and are of UDP.
const (
	offerLeast   = 8 + secretBytes
	offerBytes   = offerLeast + 1 + hardwareBytes
	offerVersion = 1
	flagEncrypt  = 1
	flagMeasure  = 2
)

// Sizes of packets that are probed: those that fit into UDP datagrams with the MTU 9000, 1500,
// 1450 (an overlay) and 1280 (which every path of IPv6 has), less 48 bytes of the headers of
// IPv6 and UDP. The interface refuses those that it does not take.
var probeSizes = [...]int{8952, 1452, 1402, 1232}

// bodyMost is the largest body of a packet, bodyLeast the smallest that a side may have as
// its largest.
const (
	bodyMost  = 8952 - headBytes - tagBytes
	bodyLeast = 1232 - headBytes - tagBytes
)

// Times of the probes.
const (
	probePause = 20 * time.Millisecond // between two rounds
	probeWait  = time.Second           // without an echo the carrier is not used
	probeMore  = 50 * time.Millisecond // after the first echo, for those of larger packets
)

// Endpoint is this side of a connection that package peers makes.
type Endpoint struct {
	l      *Link
	c      *conn
	secret [secretBytes]byte
	offers bool // this side offers a trial
	// measures says that both sides do. trial is that of the connection, and belongs to the
	// engine's goroutine.
	measures bool
	trial    *trial
	// The fields below are guarded by l.mu.
	reached bool          // c.to is known
	largest int           // size of the largest packet that has come back
	most    int           // size of the largest packet that the interface takes
	changed chan struct{} // has an item after a change of them
}

// Prepare makes an Endpoint for a peer.
func (l *Link) Prepare(peer link.Peer) *Endpoint {
	e := &Endpoint{l: l, c: &conn{l: l, peer: peer}, changed: make(chan struct{}, 1)}
	e.c.pipe.fd = -1
	var b [4]byte
	for e.c.session == notConn {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		e.c.session = binary.LittleEndian.Uint32(b[:])
	}
	_, _ = rand.Read(e.secret[:]) // as above
	e.c.snd.init(&l.stats)
	e.c.rcv.init()
	e.c.pulls.window = blocksOne
	if l.cfg.Measure {
		l.mu.Lock()
		e.offers = !l.reads.trials.failed[peer]
		l.mu.Unlock()
	}
	return e
}

// Offer returns what the peer needs for its side.
func (e *Endpoint) Offer() []byte {
	at := &e.l.at
	b := make([]byte, 8, offerBytes)
	b[0] = offerVersion
	if e.l.cfg.Encrypt {
		b[1] |= flagEncrypt
	}
	if e.offers {
		b[1] |= flagMeasure
	}
	binary.LittleEndian.PutUint16(b[2:], at.port)
	binary.LittleEndian.PutUint32(b[4:], e.c.session)
	b = append(append(b, e.secret[:]...), at.kind)
	return append(b, at.hardware[:]...)
}

// Connect probes the path to the peer whose offer it is, and returns an error if no probe
// comes back. The engine has to poll the link meanwhile.
func (e *Endpoint) Connect(offer []byte) error {
	theirs, err := e.accept(offer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	// By UDP, the peer with the lower number knows where the other one listens. That one
	// answers to the address from which the first probe has come, as that may be translated.
	if theirs.kind == kindRaw || e.l.cfg.Self < e.c.peer {
		to, err := e.l.resolve(ctx, e.c.peer, &theirs)
		if err != nil {
			return err
		}
		e.l.mu.Lock()
		e.c.to, e.reached = to, true
		e.l.mu.Unlock()
	}
	return e.probe(ctx)
}

// accept checks the offer of the peer, and makes the Endpoint known to the engine.
func (e *Endpoint) accept(offer []byte) (theirs place, err error) {
	switch {
	case len(offer) < offerLeast || offer[0] != offerVersion:
		return theirs, fmt.Errorf("ether: the peer's offer has version %d and %d bytes, this sidecar has version %d: use images of one release", first(offer), len(offer), offerVersion)
	case binary.LittleEndian.Uint32(offer[4:]) == notConn:
		return theirs, errors.New("ether: the peer's offer has the session 0, which means none")
	case offer[1]&flagEncrypt != 0 != e.l.cfg.Encrypt:
		return theirs, errors.New("ether: only one side encrypts: give all sidecars of the job the same document")
	}
	theirs.port = binary.LittleEndian.Uint16(offer[2:])
	if len(offer) >= offerBytes {
		theirs.kind, theirs.hardware = offer[offerLeast], hardware(offer[offerLeast+1:])
	}
	if err := e.l.at.check(&theirs); err != nil {
		return theirs, err
	}
	c := e.c
	c.remote = binary.LittleEndian.Uint32(offer[4:])
	secret := [secretBytes]byte(offer[8:])
	if c.tx, err = newSealer(&e.secret, &secret, e.l.cfg.Encrypt); err != nil {
		return theirs, err
	}
	if c.rx, err = newSealer(&secret, &e.secret, e.l.cfg.Encrypt); err != nil {
		return theirs, err
	}
	e.measures = e.offers && offer[1]&flagMeasure != 0
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if e.l.pending[c.session] != nil {
		return theirs, errors.New("ether: two connections have drawn the same number") // peers connect again
	}
	e.l.pending[c.session] = e
	e.l.pendingCount.Store(int32(len(e.l.pending)))
	return theirs, nil
}

func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

// resolve returns the address of the carrier of a peer.
func (l *Link) resolve(ctx context.Context, peer link.Peer, at *place) (a address, err error) {
	if at.kind == kindRaw {
		return l.at.addressOf(at.hardware), nil
	}
	host, _, err := net.SplitHostPort(l.cfg.Addresses[peer])
	if err != nil {
		return a, fmt.Errorf("ether: address of pod %d: %w", peer, err)
	}
	ips, err := l.cfg.Resolve(ctx, host)
	if err != nil {
		return a, fmt.Errorf("ether: address of pod %d: %w", peer, err)
	}
	for _, ip := range ips {
		if a, err = l.out.carrier.addressOf(netip.AddrPortFrom(ip, at.port)); err == nil {
			return a, nil
		}
	}
	return a, errors.Join(fmt.Errorf("ether: pod %d has no address that UDP reaches", peer), err)
}

// probe sends packets of all sizes until one comes back, and sets the largest that does.
func (e *Endpoint) probe(ctx context.Context) error {
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	over := (<-chan time.Time)(nil)
	e.sendProbes()
	for {
		select {
		case <-e.changed:
			largest := e.size()
			switch {
			case largest > 0 && largest >= e.possible():
				e.sized(largest)
				return nil
			case largest > 0 && over == nil:
				over = time.After(probeMore)
			case largest == 0:
				e.sendProbes() // the address has become known
			}
		case <-tick.C:
			e.sendProbes()
		case <-over:
			e.sized(e.size())
			return nil
		case <-ctx.Done():
			return e.l.at.unreached()
		}
	}
}

// possible returns the size of the largest packet that may come back.
func (e *Endpoint) possible() int {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	return e.most
}

func (e *Endpoint) size() int {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	return e.largest
}

// sized sets the size of the packets of this side.
func (e *Endpoint) sized(n int) { e.c.bodyMax = n - headBytes - tagBytes }

// sendProbes sends one probe of each size that is larger than what has come back.
func (e *Endpoint) sendProbes() {
	var body [bodyMost]byte
	packet := make([]byte, 0, headBytes+bodyMost+tagBytes)
	for _, n := range probeSizes {
		e.l.mu.Lock()
		if e.reached && n > e.largest {
			packet = e.c.tx.seal(packet[:0], kindProbe, e.c.remote, body[:n-headBytes-tagBytes])
			if err := e.l.out.carrier.sendOne(&e.c.to, packet); !errors.Is(err, unix.EMSGSIZE) { // otherwise the interface does not take it
				e.most = max(e.most, n)
			}
		}
		e.l.mu.Unlock()
	}
}

// echoBytes is the body of an echo: the size of the probe, u32.
const echoBytes = 4

// echo answers a probe with a body of n bytes.
func (l *Link) echo(c *conn, n int, from *address) {
	binary.LittleEndian.PutUint32(l.out.body[:], uint32(headBytes+n+tagBytes))
	l.out.one = c.tx.seal(l.out.one[:0], kindEcho, c.remote, l.out.body[:echoBytes])
	_ = l.out.carrier.sendOne(from, l.out.one) // the peer probes again
}

// pendingPacket handles a packet for a connection that is being made. It returns false if
// there is none with its number.
func (l *Link) pendingPacket(b []byte, from *address) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pending[sessionOf(b)]
	if e == nil {
		return false
	}
	body := l.authentic(e.c, b)
	if body == nil {
		return true
	}
	switch kindOf(b) {
	case kindProbe:
		if !e.reached {
			e.c.to, e.reached = *from, true
			e.note()
		}
		l.echo(e.c, len(body), from)
	case kindEcho:
		if len(body) != echoBytes {
			break
		}
		if n := int(binary.LittleEndian.Uint32(body)); n > e.largest && n <= e.most && slices.Contains(probeSizes[:], n) {
			e.largest = n
			e.note()
		}
	case kindStream, kindAck: // the peer has joined already
		e.c.packet(kindOf(b), body, nil)
	}
	return true
}

// note wakes Connect. Preconditions: l.mu is held.
func (e *Endpoint) note() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// handOver returns the connection to the engine; nil: the Endpoint is closed.
func (e *Endpoint) handOver() *conn {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	c := e.c
	e.c = nil
	if c != nil {
		e.forget(c)
	}
	return c
}

// forget removes the Endpoint from those that are pending. Preconditions: l.mu is held.
func (e *Endpoint) forget(c *conn) {
	if e.l.pending[c.session] == e {
		delete(e.l.pending, c.session)
		e.l.pendingCount.Store(int32(len(e.l.pending)))
	}
}

// Close releases an Endpoint that was not joined. If Join was called, the engine's goroutine calls
// Close.
func (e *Endpoint) Close() error {
	if e.trial != nil {
		e.l.abandon(e.trial)
	}
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	if e.c != nil {
		e.forget(e.c)
		e.l.abandoned = append(e.l.abandoned, e.c) // its packets belong to the engine
		e.l.abandons.Store(true)
		e.c = nil
	}
	return nil
}
