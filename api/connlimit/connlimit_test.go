package connlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/outrigger-hpc/outrigger/api/connlimit/hostile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn is a connection from an address that a test chooses.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (g *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(g.from), Port: 1} }
func (g *fakeConn) Close() error         { g.closed = true; return nil }

// testListener is a listener with a clock that the test moves.
type testListener struct {
	*Listener
	clock time.Time
}

func open(b Bounds) *testListener {
	h := &testListener{Listener: Listen(nil, &b)}
	h.now = func() time.Time { return h.clock }
	h.rates.now = h.now
	return h
}

func (h *testListener) admit(t *testing.T, from string) *fakeConn {
	t.Helper()
	h.clock = h.clock.Add(time.Millisecond)
	g := &fakeConn{from: from}
	if _, err := h.Listener.admit(g); err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	return g
}

func closed(list []*fakeConn) (at []int) {
	for i, g := range list {
		if g.closed {
			at = append(at, i)
		}
	}
	return at
}

// TestMostAreClosedFirst checks that a new connection takes the oldest slot of the
// address with the most connections, or its own address's oldest if no other has more.
func TestMostAreClosedFirst(t *testing.T) {
	h := open(Bounds{Slots: 4})
	var list []*fakeConn
	for _, c := range []struct {
		from string
		gone []int
	}{
		{"10.0.0.9", nil}, // the first connection stays, since its address has only one
		{"10.0.0.1", nil},
		{"10.0.0.1", nil},
		{"10.0.0.1", nil},
		{"10.0.0.1", []int{1}},
		{"10.0.0.1", []int{1, 2}},
		{"10.0.0.2", []int{1, 2, 3}},
		{"10.0.0.3", []int{1, 2, 3, 4}}, // from now on each address has one connection
		{"10.0.0.1", []int{1, 2, 3, 4, 5}},
		{"10.0.0.4", []int{0, 1, 2, 3, 4, 5}},
	} {
		list = append(list, h.admit(t, c.from))
		if got := closed(list); !slices.Equal(got, c.gone) {
			t.Fatalf("after the connection %d, from %s: closed %v, want %v", len(list)-1, c.from, got, c.gone)
		}
	}
	if h.Open() != 4 {
		t.Errorf("%d slots are in use", h.Open())
	}
}

// TestHold checks that none of many connections that arrive at once is closed for another
// one, unless its address has more than others, and that an address gets at most its
// share.
func TestHold(t *testing.T) {
	h := open(Bounds{Slots: 4, Share: 3, Hold: time.Second})
	var list []*fakeConn
	for range 3 {
		list = append(list, h.admit(t, "10.0.0.1"))
	}
	if _, err := h.Listener.admit(&fakeConn{from: "10.0.0.1"}); !errors.Is(err, errShare) {
		t.Errorf("a fourth connection of an address with a share of three: %v", err)
	}
	for i, gone := range [][]int{nil, {0}, {0, 1}} {
		list = append(list, h.admit(t, fmt.Sprintf("10.0.1.%d", i)))
		if got := closed(list); !slices.Equal(got, gone) {
			t.Errorf("with %d others: closed %v, want %v", i+1, got, gone)
		}
	}
	evicted, wait, err := h.slotFor(&conn{from: "10.0.1.9"})
	if evicted != h.conns[0] || wait != time.Second-3*time.Millisecond || err != nil {
		t.Errorf("a connection beyond as many addresses as slots waits %s, %v", wait, err)
	}
	h.clock = h.clock.Add(time.Second)
	list = append(list, h.admit(t, "10.0.1.9"))
	if got := closed(list); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("after the time of the oldest: closed %v", got)
	}
}

// TestShareOfANetwork checks that a machine that uses another address of its /64 for each
// connection is refused at once when it has taken all slots, so that no other connection
// waits behind it, and that it loses half of them to other networks without a wait. Other
// new connections wait as usual.
func TestShareOfANetwork(t *testing.T) {
	h := open(Bounds{Slots: 64, Share: 16, Hold: time.Second})
	var list []*fakeConn
	for i := range 64 {
		list = append(list, h.admit(t, fmt.Sprintf("2001:db8::%x", i+1)))
	}
	for i := range 900 {
		h.clock = h.clock.Add(time.Millisecond)
		if _, err := h.Listener.admit(&fakeConn{from: fmt.Sprintf("2001:db8::1:%x", i+1)}); !errors.Is(err, errShare) {
			t.Fatalf("another connection of a network that has all slots: %v", err)
		}
		if i%60 == 0 {
			h.admit(t, fmt.Sprintf("2001:db8:0:1::%x", i+1))
			h.admit(t, fmt.Sprintf("10.0.%d.0", i/60))
		}
	}
	h.admit(t, "10.1.0.1")
	h.admit(t, "10.1.0.2")
	if got := len(closed(list)); got != 32 || h.Open() != 64 {
		t.Errorf("%d connections of the network were closed for 32 others; %d slots are in use", got, h.Open())
	}
	if _, wait, err := h.slotFor(&conn{from: "10.1.0.4"}); wait <= 0 || err != nil {
		t.Errorf("when no network has half of the slots: wait %v, %v", wait, err)
	}
	h.clock = h.clock.Add(time.Second)
	h.admit(t, "2001:db8::2:1") // the time of the oldest connection has passed
	for len(h.conns) > 0 {
		h.remove(h.conns[0])
	}
	if len(h.by)+len(h.byNetwork) > 0 {
		t.Errorf("no connection is open, but %v, %v are counted", h.by, h.byNetwork)
	}
}

// TestWaiting checks that a connection that waits for a slot gets one that is released,
// and that the end of the listener ends the wait.
func TestWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &testListener{Listener: Listen(l, &Bounds{Slots: 1, Hold: time.Hour})}
	h.now = time.Now
	first, err := h.Listener.admit(&fakeConn{from: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	wait := func(from string) {
		_, err := h.Listener.admit(&fakeConn{from: from})
		result <- err
	}
	go wait("10.0.0.2")
	_ = first.Close() // the error is always nil
	if err := <-result; err != nil {
		t.Errorf("after a slot was released: %v", err)
	}
	go wait("10.0.0.3")
	if err := errors.Join(h.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, net.ErrClosed) {
		t.Errorf("at the end: %v", err)
	}
}

// attacks is what hostile clients do with a connection.
var attacks = map[string]func(net.Conn) error{
	"silent": func(net.Conn) error { return nil },
	"half a header": func(c net.Conn) error {
		_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
		return err
	},
	"idle after a request": func(c net.Conn) error {
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			err = r.Body.Close()
		}
		return err
	},
	"never reads": func(c net.Conn) error {
		_, err := io.WriteString(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
		return err
	},
	"waits in a handler": func(c net.Conn) error {
		_, err := io.WriteString(c, "POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		return err
	},
}

// TestProbeAmongThousands checks that thousands of connections of untrusted clients use
// only the slots, and that a probe from the same address is answered meanwhile.
func TestProbeAmongThousands(t *testing.T) {
	const count, most = 1000, 32
	for name, attack := range attacks {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			raw, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b := Bounds{Slots: most, Buffer: 32 << 10, Header: 8 << 10, Request: time.Hour, Answer: time.Hour, Idle: time.Hour}
			ctx, end := context.WithCancel(t.Context())
			done := make(chan error)
			mux := http.NewServeMux()
			mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20)) })
			mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			go func() { done <- Serve(ctx, raw, mux, &b) }()
			at := raw.Addr().String()
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			var list hostile.Conns
			for range 10 {
				list = append(list, hostile.Gather(t, at, count/10, func(_ int, c net.Conn) error { return attack(c) })...)
				r, err := client.Get("http://" + at + "/healthz")
				if err != nil {
					t.Fatalf("a probe with %d connections: %v", len(list), err)
				}
				if r.StatusCode != http.StatusOK {
					t.Errorf("a probe: %s", r.Status)
				}
				_ = r.Body.Close() // the body is short
			}
			if open := list.Open(t); open > most {
				t.Errorf("%d of %d connections are open, want %d at most", open, count, most)
			}
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
			list.Close()
		})
	}
}

// TestAddress checks that all loopback addresses, of which a process may use any, count
// as one.
func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "fd00::1": "fd00::1", "127.0.0.1": "loopback", "127.1.2.3": "loopback", "::1": "loopback",
	} {
		if got := Address(&net.TCPAddr{IP: net.ParseIP(text)}); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := Address(&net.UnixAddr{Name: "x"}); got != "" {
		t.Errorf("a Unix socket is %q", got)
	}
}

// TestLimitedLog checks that errors of untrusted clients do not fill the log.
func TestLimitedLog(t *testing.T) {
	var log strings.Builder
	s := limitedLog{to: &log, limit: rate.NewLimiter(0, 2)}
	for range 100 {
		if n, err := s.Write([]byte("line\n")); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	}
	if log.String() != "line\nline\n" {
		t.Errorf("%q", log.String())
	}
}

// TestRate checks that an address that opens connections without end is refused beyond
// its rate, and that another one is not; the number of counted addresses is bounded.
func TestRate(t *testing.T) {
	h := open(Bounds{Slots: 4, Rate: 10})
	taken := 0
	for range 1000 { // 1000 connections within one second
		h.clock = h.clock.Add(time.Millisecond)
		if _, err := h.Listener.admit(&fakeConn{from: "10.0.0.1"}); err == nil {
			taken++
		} else if !errors.Is(err, errShare) {
			t.Fatal(err)
		}
	}
	if taken < 20 || taken > 31 {
		t.Errorf("%d connections of one address in a second, want some 30", taken)
	}
	h.admit(t, "10.0.0.2")
	for range 1000 {
		h.admit(t, "127.0.0.1")
	}
	for i := range 3 * ratesMax {
		h.admit(t, fmt.Sprintf("10.1.%d.%d", i/256, i%256))
		if len(h.rates.addresses) > ratesMax {
			t.Fatalf("%d addresses are counted", len(h.rates.addresses))
		}
	}
}

// TestRateOfANetwork checks that a machine that uses another address of its /64 for each
// connection is refused, too, and that other networks are not, nor an address of the same
// network within its own rate while another one floods.
func TestRateOfANetwork(t *testing.T) {
	const perSecond = 10
	for what, x := range map[string]struct {
		from func(i int) string
		most int
	}{
		"an address for each":         {func(i int) string { return fmt.Sprintf("2001:db8::%x:%x", i/100, i) }, (2 + 2) * networkRate * perSecond},
		"an address, and its network": {func(int) string { return "2001:db8::1" }, (2 + 2) * perSecond},
	} {
		h := open(Bounds{Slots: 4, Rate: perSecond})
		taken := 0
		for i := range 2000 { // connections within two seconds
			h.clock = h.clock.Add(time.Millisecond)
			if _, err := h.Listener.admit(&fakeConn{from: x.from(i)}); err == nil {
				taken++
			} else if !errors.Is(err, errShare) {
				t.Fatal(err)
			}
		}
		if taken > x.most+1 || taken < x.most/2 {
			t.Errorf("%s: %d connections in two seconds, want at most %d", what, taken, x.most)
		}
		h.admit(t, "2001:db8:0:1::1")
		if what != "an address for each" {
			h.admit(t, "2001:db8::2")
		}
	}
	h := open(Bounds{Slots: 4, Rate: perSecond})
	for i := range 3 * ratesMax {
		h.admit(t, fmt.Sprintf("2001:db8:%x::1", i))
		if len(h.rates.addresses) > ratesMax || len(h.rates.networks) > ratesMax {
			t.Fatalf("%d addresses and %d networks are counted", len(h.rates.addresses), len(h.rates.networks))
		}
	}
}

// TestGap checks that a client that sends requests without end on one connection, whether
// it waits for answers or not, is answered at the bounded rate, and that a new connection
// is answered at once.
func TestGap(t *testing.T) {
	const gap = 50 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	go func() { done <- Serve(ctx, l, h, &Bounds{Slots: 2, Gap: gap}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // all responses were read
	const count = 6
	begun := time.Now()
	if _, err := io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", count)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for range count {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < (count-1)*gap {
		t.Errorf("%d requests of one connection took %v, want %v at least", count, took, (count-1)*gap)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
