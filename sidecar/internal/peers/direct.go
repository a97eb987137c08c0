package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Direct is a way between two sidecars other than the data connection, such as a pair of
// RDMA queue pairs, or shared memory of one machine: each side makes an Endpoint, and
// connects it with the other's offer. The messages about it use the control connection.
type Direct struct {
	Name string // name of the direct transport in logs
	// Prepare makes an Endpoint for a peer, or returns why there is none.
	Prepare func(peer link.Peer) (Endpoint, error)
	// Connected receives the socket, as Config.Connected does, and the Endpoint.
	Connected func(peer link.Peer, fd int, end Endpoint)
	// Required says that a connection without it must not be made.
	Required bool
	// Missed is the log level of the line that data does not use this way.
	Missed slog.Level
}

// Endpoint is this side of a direct connection. Close releases one that Connected has not
// received.
type Endpoint interface {
	Offer() []byte
	Connect(offer []byte) error
	Close() error
}

// offerMax bounds an offer of a peer.
const offerMax = 256

// Outcomes of an attempt to connect the Endpoints.
const (
	directNot = 0
	directOn  = 1
)

// errNotDirect is wrapped by the reason why a connection was not made.
var errNotDirect = errors.New("data must go")

// required returns the error of a connection that must not be made without d.
func (d *Direct) required() error { return fmt.Errorf("%w by %s", errNotDirect, d.Name) }

// direct reports whether both sides can connect directly. It returns an error if this
// side must and the other cannot.
func (m *Mesh) direct(g greeting, peer link.Peer) (bool, error) {
	d := m.cfg.Direct
	if d == nil || g.direct {
		return d != nil, nil
	}
	if d.Required {
		return false, fmt.Errorf("%w, and pod %d does not offer it: give all pods of the job what it needs, or make the transport preferred", d.required(), peer)
	}
	m.logMissed(peer, errors.New("the peer does not offer it"))
	return false, nil
}

// makeEndpoint makes this side's Endpoint and connects it with the peer's offer. why is
// the reason if it is not connected; err ends the control connection.
func (m *Mesh) makeEndpoint(peer link.Peer, t io.ReadWriter) (end Endpoint, why, err error) {
	var mine []byte
	if end, why = m.cfg.Direct.Prepare(peer); why == nil {
		mine = end.Offer()
	}
	theirs, refusal, err := exchange(t, mine, why)
	switch {
	case err != nil || why != nil:
	case refusal != nil:
		why = fmt.Errorf("the peer could not make its end: %w", refusal)
	default:
		why = end.Connect(theirs)
	}
	if err != nil || why != nil {
		err = errors.Join(err, closeEndpoint(end))
		end = nil
	}
	return end, why, err
}

// dialDirect executes the dialling side: it sends its outcome, and reads whether both
// Endpoints are connected.
func (m *Mesh) dialDirect(t io.ReadWriter, peer link.Peer) (Endpoint, error) {
	end, why, err := m.makeEndpoint(peer, t)
	if err != nil {
		return nil, err
	}
	both := false
	if err = sendOutcome(t, end != nil); err == nil {
		both, err = readOutcome(t)
	}
	if err != nil || !both {
		return nil, errors.Join(err, closeEndpoint(end), m.notDirect(peer, why, err))
	}
	return end, nil
}

// acceptDirect executes the accepting side: it decides, and issues the ticket before it
// sends the outcome, since the dialler connects at once.
func (m *Mesh) acceptDirect(t io.ReadWriter, k *ticket) error {
	end, why, err := m.makeEndpoint(k.peer, t)
	if err != nil {
		return err
	}
	theirs, err := readOutcome(t)
	if err != nil || !theirs || end == nil {
		err = errors.Join(err, closeEndpoint(end), m.notDirect(k.peer, why, err))
		end = nil
	}
	if err != nil {
		return err
	}
	k.end = end // which is the ticket's now
	m.issue(k)
	return sendOutcome(t, end != nil)
}

// attempt is a control connection that makes an Endpoint.
type attempt struct {
	conn net.Conn
	over chan struct{}
}

// beginAttempt gives the last control connection of a peer the right to make an Endpoint;
// end ends it. The attempt before it is closed with its Endpoint, and the last ticket
// with its own: a peer has one Endpoint in addition to that of its connection, since
// there may be no room for more (verbs has room for two connections of each peer), and
// more would use the room of other peers.
func (m *Mesh) beginAttempt(peer link.Peer, conn net.Conn) (end func()) {
	mine := &attempt{conn, make(chan struct{})}
	m.mu.Lock()
	before := m.attempts[peer]
	m.attempts[peer] = mine
	m.dropTicket(peer)
	m.mu.Unlock()
	if before != nil {
		_ = before.conn.Close() // its handshake ends
		<-before.over
	}
	return func() {
		m.mu.Lock()
		if m.attempts[peer] == mine {
			delete(m.attempts, peer)
		}
		m.mu.Unlock()
		close(mine.over)
	}
}

// notDirect logs that data uses the data connection, and why; it returns an error if it
// must not.
func (m *Mesh) notDirect(peer link.Peer, why, err error) error {
	if err != nil && why == nil {
		return nil // err is reported
	}
	if why == nil {
		why = errors.New("the peer could not connect its end")
	}
	if m.cfg.Direct.Required {
		return fmt.Errorf("%w: %w", m.cfg.Direct.required(), why)
	}
	m.logMissed(peer, why)
	return nil
}

func (m *Mesh) logMissed(peer link.Peer, why error) {
	d := m.cfg.Direct
	m.cfg.Log.Log(m.ctx, d.Missed, "data does not use "+d.Name, "peer", peer, "cause", why)
}

func closeEndpoint(e Endpoint) error {
	if e == nil {
		return nil
	}
	return e.Close()
}

// noOffer in an offer's length means that the bytes are the reason why there is none, as
// text.
const noOffer = 1 << 15

// exchange sends an offer, or why there is none, and returns the peer's.
func exchange(t io.ReadWriter, mine []byte, why error) (theirs []byte, refusal, err error) {
	n := uint16(len(mine))
	if why != nil {
		mine = []byte(why.Error())
		mine = mine[:min(len(mine), offerMax)]
		n = uint16(len(mine)) | noOffer
	}
	if _, err := t.Write(append(binary.LittleEndian.AppendUint16(nil, n), mine...)); err != nil {
		return nil, nil, fmt.Errorf("control connection: offer: %w", err)
	}
	return readOffer(t)
}

func readOffer(t io.Reader) (theirs []byte, refusal, err error) {
	var b [2]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return nil, nil, fmt.Errorf("control connection: offer: %w", err)
	}
	n := binary.LittleEndian.Uint16(b[:])
	none := n&noOffer != 0
	if n &^= noOffer; n > offerMax {
		return nil, nil, fmt.Errorf("control connection: offer of %d bytes, want at most %d", n, offerMax)
	}
	theirs = make([]byte, n)
	if _, err := io.ReadFull(t, theirs); err != nil {
		return nil, nil, fmt.Errorf("control connection: offer: %w", err)
	}
	if none {
		return nil, errors.New(strings.ToValidUTF8(string(theirs), "?")), nil
	}
	return theirs, nil, nil
}

// sendOutcome tells the peer whether this side's Endpoint is connected, or, on the
// accepting side, both.
func sendOutcome(t io.Writer, ok bool) error {
	b := []byte{directNot}
	if ok {
		b[0] = directOn
	}
	if _, err := t.Write(b); err != nil {
		return fmt.Errorf("control connection: outcome: %w", err)
	}
	return nil
}

func readOutcome(t io.Reader) (ok bool, err error) {
	var b [1]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return false, fmt.Errorf("control connection: outcome: %w", err)
	}
	if b[0] > directOn {
		return false, fmt.Errorf("control connection: outcome %d, want %d or %d", b[0], directNot, directOn)
	}
	return b[0] == directOn, nil
}
