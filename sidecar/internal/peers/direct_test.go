package peers

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// ways makes Endpoints for one node, and records what happens to them.
type ways struct {
	mu      sync.Mutex
	n       *node
	refuse  error // of Prepare
	useless bool  // the Endpoints do not connect
	made    []*way
	taken   []*way
	cause   error // why the peer failed
	most    int   // Endpoints open at the same time
}

// way is an Endpoint whose offer is its name.
type way struct {
	name   string
	met    string
	broken bool
	closed bool
}

func (w *way) Offer() []byte { return []byte(w.name) }

func (w *way) Connect(offer []byte) error {
	if w.broken {
		return errors.New("the cable is too short")
	}
	w.met = string(offer)
	return nil
}

func (w *way) Close() error {
	w.closed = true
	return nil
}

func (s *ways) prepare(link.Peer) (Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	w := &way{name: fmt.Sprintf("end %d of %d", len(s.made), s.n.cfg.Self), broken: s.useless}
	s.made = append(s.made, w)
	open := 0
	for _, m := range s.made {
		if !m.closed {
			open++
		}
	}
	s.most = max(s.most, open)
	return w, nil
}

func (s *ways) connected(peer link.Peer, fd int, end Endpoint) {
	s.mu.Lock()
	s.taken = append(s.taken, end.(*way))
	s.mu.Unlock()
	s.n.connectedTo(peer, fd)
}

func (s *ways) gaveUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

func (s *ways) failed(_ link.Peer, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause = cause
}

// last returns the Endpoint that was handed over last, and how many others were left
// open.
func (s *ways) last() (w *way, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.made {
		if !m.closed {
			open++
		}
	}
	if n := len(s.taken); n > 0 {
		w = s.taken[n-1]
	}
	return w, open
}

// couple makes two nodes; those with ways can connect directly.
func couple(t *testing.T, a, b *ways, required bool) [2]*node {
	t.Helper()
	of := []*ways{a, b}
	n := newJob(t, "j", time.Hour).nodes(2, []int{0, 1}, func(c *Config) {
		if w := of[c.Self]; w != nil {
			c.Direct = &Direct{Name: "RDMA", Prepare: w.prepare, Connected: w.connected, Required: required}
			c.Failed, c.Silence = w.failed, 300*time.Millisecond
		}
	})
	for i, w := range of {
		if w != nil {
			w.mu.Lock()
			w.n = n[i]
			w.mu.Unlock()
		}
	}
	return [2]*node(n)
}

// TestDirect checks that both sides get Endpoints that are connected with each other,
// whichever side asks, and again for the next connection.
func TestDirect(t *testing.T) {
	a, b := &ways{}, &ways{}
	n := couple(t, a, b, true)
	for i, who := range []*node{n[0], n[1]} {
		who.Connect(1 - who.cfg.Self)
		n[0].waitConnected(1, i+1)
		n[1].waitConnected(0, i+1)
		bothWays(t, n[0], n[1])
		x, _ := a.last()
		y, _ := b.last()
		if x == nil || y == nil || x.met != y.name || y.met != x.name || x.closed || y.closed {
			t.Errorf("ends %+v and %+v are not connected with each other", x, y)
		}
	}
}

// TestNotDirect checks that data uses the data connection if one side cannot connect
// directly, that both logs contain the reason, and that no Endpoint is left open.
func TestNotDirect(t *testing.T) {
	for name, c := range map[string]struct {
		a, b *ways
		why  string
	}{
		"no device at the dialler":  {nil, &ways{}, "the peer does not offer it"},
		"no device at the acceptor": {&ways{}, nil, "the peer does not offer it"},
		"the dialler's fails":       {&ways{refuse: errors.New("the device is gone")}, &ways{}, "the device is gone"},
		"the acceptor's fails":      {&ways{}, &ways{refuse: errors.New("the device is gone")}, "the device is gone"},
		"the dialler's cannot":      {&ways{useless: true}, &ways{}, "the cable is too short"},
		"the acceptor's cannot":     {&ways{}, &ways{useless: true}, "the cable is too short"},
	} {
		t.Run(name, func(t *testing.T) {
			n := couple(t, c.a, c.b, false)
			n[0].Connect(1)
			n[0].waitConnected(1, 1)
			n[1].waitConnected(0, 1)
			bothWays(t, n[0], n[1])
			if log := n[0].log.String() + n[1].log.String(); !strings.Contains(log, c.why) {
				t.Errorf("the logs do not say %q:\n%s", c.why, log)
			}
			for _, w := range []*ways{c.a, c.b} {
				if w == nil {
					continue
				}
				if taken, open := w.last(); taken != nil || open != 0 {
					t.Errorf("%v was handed over, and %d endpoints are open", taken, open)
				}
			}
		})
	}
}

// TestDirectRequired checks that a required direct connection is not replaced by one over
// sockets.
func TestDirectRequired(t *testing.T) {
	for name, c := range map[string]struct {
		a, b *ways
		why  string
	}{
		"no device":   {&ways{}, nil, "and pod 1 does not offer it"},
		"it fails":    {&ways{refuse: errors.New("the device is gone")}, &ways{}, "data must go by RDMA: the device is gone"},
		"the other's": {&ways{}, &ways{refuse: errors.New("the device is gone")}, "data must go by RDMA: the peer could not make its end: the device is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			n := couple(t, c.a, c.b, true)
			n[0].Connect(1)
			wait(t, "the end of the attempts", func() bool { return c.a.gaveUp() != nil })
			if cause := c.a.gaveUp(); !strings.Contains(cause.Error(), c.why) {
				t.Errorf("failed for %q, want %q", cause, c.why)
			}
			if n[0].count(1) != 0 {
				t.Error("connected over sockets")
			}
		})
	}
}

// TestEndpointsOfOnePeer checks that a peer that begins control connections, and hangs in
// the middle of each, or never uses its ticket, has one Endpoint at a time: the last one.
func TestEndpointsOfOnePeer(t *testing.T) {
	b := &ways{}
	n := couple(t, &ways{}, b, true)
	var id ticketID
	begin := func() *tls.Conn {
		t.Helper()
		c := tls.Client(n[1].dialRaw(), n[0].cfg.TLS)
		if _, err := n[0].identify(c); err != nil {
			t.Fatal(err)
		}
		if _, err := n[0].greet(c, 1); err != nil {
			t.Fatal(err)
		}
		var v [verdictBytes]byte
		if _, err := io.ReadFull(c, v[:]); err != nil {
			t.Fatal(err)
		}
		copy(id[:], v[4:])
		if _, _, err := readOffer(c); err != nil { // its Endpoint is made
			t.Fatal(err)
		}
		return c
	}
	var hang []*tls.Conn
	for range 2 * provenMax {
		hang = append(hang, begin())
	}
	for _, c := range hang[:len(hang)-1] {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a control connection before the last one continues")
		}
	}
	complete := func(c *tls.Conn) { // up to the ticket
		t.Helper()
		if _, _, err := exchange(discarded{c}, []byte("mine"), nil); err != nil {
			t.Fatal(err)
		}
		if err := sendOutcome(c, true); err != nil {
			t.Fatal(err)
		}
		if both, err := readOutcome(c); err != nil || !both {
			t.Fatal(both, err)
		}
	}
	complete(hang[len(hang)-1])
	first := id
	complete(begin())
	if n[1].redeem(first) != nil {
		t.Error("a ticket before the last one is good")
	}
	n[0].Connect(1)
	n[0].waitConnected(1, 1)
	n[1].waitConnected(0, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most != 1 || len(b.taken) != 1 {
		t.Errorf("one peer had %d endpoints at once, want 1; %d were handed over", b.most, len(b.taken))
	}
}

// discarded is a connection whose further input is discarded: the peer's offer has
// arrived.
type discarded struct{ io.ReadWriter }

func (discarded) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// FuzzOffer checks that no length in a peer's message makes this side read more than the
// bound.
func FuzzOffer(f *testing.F) {
	f.Add([]byte{3, 0, 1, 2, 3})
	f.Add([]byte{0xff, 0xff})
	f.Add([]byte{2, 0x80, 0xff, 0x41})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, refusal, err := readOffer(bytes.NewReader(raw))
		if refusal != nil && (err != nil || got != nil || !utf8.ValidString(refusal.Error())) {
			t.Errorf("%x became %x, %q, %v", raw, got, refusal, err)
		}
		if err == nil && (len(got) > offerMax || !bytes.Equal(got, raw[2:2+len(got)])) {
			t.Errorf("%x became %x", raw, got)
		}
	})
}
