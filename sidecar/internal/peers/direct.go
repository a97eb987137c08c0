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

// Direct is a way between two sidecars beside the data connection, such as a pair
// of RDMA queue pairs, or memory of one machine: each side makes an end, and connects it with the other's
// offer. What is said about it is said inside of the control connection.
type Direct struct {
	Name string // of the way, as people know it
	// Prepare makes an end for a peer; an error says why there is none.
	Prepare func(peer link.Peer) (End, error)
	// Connected takes what Config.Connected takes, and the end.
	Connected func(peer link.Peer, fd int, end End)
	// Required says that a connection without it is none.
	Required bool
	// Missed is at which level it is told that data does not go this way.
	Missed slog.Level
}

// End is this side's end. Close gives up one that nobody has taken over.
type End interface {
	Offer() []byte
	Connect(offer []byte) error
	Close() error
}

// offerMax bounds what a peer may offer.
const offerMax = 256

// Outcomes of an attempt to connect the ends.
const (
	directNot = 0
	directOn  = 1
)

// errNotDirect says why a connection was not made.
var errNotDirect = errors.New("data must go by RDMA")

// direct reports whether both sides have said that they can connect directly; an
// error, that one of them must and the other cannot.
func (m *Mesh) direct(g greeting, peer link.Peer) (bool, error) {
	d := m.cfg.Direct
	if d == nil || g.direct {
		return d != nil, nil
	}
	if d.Required {
		return false, fmt.Errorf("%w, and pod %d does not offer it: give all pods of the job a device, or make RDMA preferred", errNotDirect, peer)
	}
	m.missed(peer, errors.New("the peer does not offer it"))
	return false, nil
}

// makeEnd makes this side's end and connects it with the peer's offer. why says
// what kept it from being connected; err ends the control connection.
func (m *Mesh) makeEnd(peer link.Peer, t io.ReadWriter) (end End, why, err error) {
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
		err = errors.Join(err, closeEnd(end))
		end = nil
	}
	return end, why, err
}

// dialDirect is the dialling side: it says how it went, and hears whether both
// ends are connected.
func (m *Mesh) dialDirect(t io.ReadWriter, peer link.Peer) (End, error) {
	end, why, err := m.makeEnd(peer, t)
	if err != nil {
		return nil, err
	}
	both := false
	if err = say(t, end != nil); err == nil {
		both, err = hear(t)
	}
	if err != nil || !both {
		return nil, errors.Join(err, closeEnd(end), m.without(peer, why, err))
	}
	return end, nil
}

// acceptDirect is the accepting side: it has the last word, and issues the ticket
// before, since the dialler comes at once.
func (m *Mesh) acceptDirect(t io.ReadWriter, k *ticket) error {
	end, why, err := m.makeEnd(k.peer, t)
	if err != nil {
		return err
	}
	theirs, err := hear(t)
	if err != nil || !theirs || end == nil {
		err = errors.Join(err, closeEnd(end), m.without(k.peer, why, err))
		end = nil
	}
	if err != nil {
		return err
	}
	k.end = end // which is the ticket's now
	m.issue(k)
	return say(t, end != nil)
}

// making is a control connection by which an end is made.
type making struct {
	conn net.Conn
	over chan struct{}
}

// turnOf gives a peer's last control connection its turn to make an end; end says that it
// is over. The one before it is given up, with its end, and so is the last ticket with its
// own: a peer has one end beside that of its connection, since there may be no room for
// more (verbs has two for each peer), and the others' would be gone.
func (m *Mesh) turnOf(peer link.Peer, conn net.Conn) (end func()) {
	mine := &making{conn, make(chan struct{})}
	m.mu.Lock()
	before := m.making[peer]
	m.making[peer] = mine
	m.dropTicket(peer)
	m.mu.Unlock()
	if before != nil {
		_ = before.conn.Close() // its handshake ends
		<-before.over
	}
	return func() {
		m.mu.Lock()
		if m.making[peer] == mine {
			delete(m.making, peer)
		}
		m.mu.Unlock()
		close(mine.over)
	}
}

// without says that data goes by the data connection, and why; an error if it may
// not.
func (m *Mesh) without(peer link.Peer, why, err error) error {
	if err != nil && why == nil {
		return nil // err says it
	}
	if why == nil {
		why = errors.New("the peer could not connect its end")
	}
	if m.cfg.Direct.Required {
		return fmt.Errorf("%w: %w", errNotDirect, why)
	}
	m.missed(peer, why)
	return nil
}

func (m *Mesh) missed(peer link.Peer, why error) {
	d := m.cfg.Direct
	m.cfg.Log.Log(m.ctx, d.Missed, "data does not go by "+d.Name, "peer", peer, "cause", why)
}

func closeEnd(e End) error {
	if e == nil {
		return nil
	}
	return e.Close()
}

// noOffer in an offer's length says that its bytes are the reason why there is
// none, in words.
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
		return nil, nil, fmt.Errorf("control connection: an offer of %d bytes, at most %d", n, offerMax)
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

// say tells the peer whether an end is connected, or on the accepting side, both.
func say(t io.Writer, ok bool) error {
	b := []byte{directNot}
	if ok {
		b[0] = directOn
	}
	if _, err := t.Write(b); err != nil {
		return fmt.Errorf("control connection: outcome: %w", err)
	}
	return nil
}

func hear(t io.Reader) (ok bool, err error) {
	var b [1]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return false, fmt.Errorf("control connection: outcome: %w", err)
	}
	if b[0] > directOn {
		return false, fmt.Errorf("control connection: outcome %d", b[0])
	}
	return b[0] == directOn, nil
}
