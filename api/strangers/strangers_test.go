package strangers

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

	"github.com/outrigger-hpc/outrigger/api/strangers/hostile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is a connection from an address that a test chooses.
type guest struct {
	net.Conn
	from   string
	closed bool
}

func (g *guest) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(g.from), Port: 1} }
func (g *guest) Close() error         { g.closed = true; return nil }

// hall is a listener with a clock that the test moves.
type hall struct {
	*Listener
	clock time.Time
}

func open(b Bounds) *hall {
	h := &hall{Listener: Listen(nil, &b)}
	h.now = func() time.Time { return h.clock }
	h.rates.now = h.now
	return h
}

func (h *hall) enter(t *testing.T, from string) *guest {
	t.Helper()
	h.clock = h.clock.Add(time.Millisecond)
	g := &guest{from: from}
	if _, err := h.Listener.enter(g); err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	return g
}

func closed(list []*guest) (at []int) {
	for i, g := range list {
		if g.closed {
			at = append(at, i)
		}
	}
	return at
}

// TestMostGoFirst: a newcomer takes the oldest place of the address that holds most, and
// its own address's if no other holds more.
func TestMostGoFirst(t *testing.T) {
	h := open(Bounds{Places: 4})
	var list []*guest
	for _, c := range []struct {
		from string
		gone []int
	}{
		{"10.0.0.9", nil}, // comes first and holds one: stays
		{"10.0.0.1", nil},
		{"10.0.0.1", nil},
		{"10.0.0.1", nil},
		{"10.0.0.1", []int{1}},
		{"10.0.0.1", []int{1, 2}},
		{"10.0.0.2", []int{1, 2, 3}},
		{"10.0.0.3", []int{1, 2, 3, 4}}, // from now on each address holds one
		{"10.0.0.1", []int{1, 2, 3, 4, 5}},
		{"10.0.0.4", []int{0, 1, 2, 3, 4, 5}},
	} {
		list = append(list, h.enter(t, c.from))
		if got := closed(list); !slices.Equal(got, c.gone) {
			t.Fatalf("after the connection %d, from %s: closed %v, want %v", len(list)-1, c.from, got, c.gone)
		}
	}
	if h.Open() != 4 {
		t.Errorf("%d places are taken", h.Open())
	}
}

// TestHold: of clients that come at once none has to begin again because of another
// one, unless its address holds more than others; an address gets its share at most.
func TestHold(t *testing.T) {
	h := open(Bounds{Places: 4, Share: 3, Hold: time.Second})
	var list []*guest
	for range 3 {
		list = append(list, h.enter(t, "10.0.0.1"))
	}
	if _, err := h.Listener.enter(&guest{from: "10.0.0.1"}); !errors.Is(err, errCrowded) {
		t.Errorf("a fourth of an address that may have three: %v", err)
	}
	for i, gone := range [][]int{nil, {0}, {0, 1}} {
		list = append(list, h.enter(t, fmt.Sprintf("10.0.1.%d", i)))
		if got := closed(list); !slices.Equal(got, gone) {
			t.Errorf("with %d others: closed %v, want %v", i+1, got, gone)
		}
	}
	goes, wait, err := h.room(&conn{from: "10.0.1.9"})
	if goes != h.conns[0] || wait != time.Second-3*time.Millisecond || err != nil {
		t.Errorf("one more of as many addresses as there are places waits %s, %v", wait, err)
	}
	h.clock = h.clock.Add(time.Second)
	list = append(list, h.enter(t, "10.0.1.9"))
	if got := closed(list); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("after the time of the oldest: closed %v", got)
	}
}

// TestShareOfANetwork: a machine that takes another address of its /64 for each connection is
// refused at once when it has taken all places, so that no other newcomer waits behind it, and
// loses half of them to other networks without a wait. Other newcomers wait, as before.
func TestShareOfANetwork(t *testing.T) {
	h := open(Bounds{Places: 64, Share: 16, Hold: time.Second})
	var list []*guest
	for i := range 64 {
		list = append(list, h.enter(t, fmt.Sprintf("2001:db8::%x", i+1)))
	}
	for i := range 900 {
		h.clock = h.clock.Add(time.Millisecond)
		if _, err := h.Listener.enter(&guest{from: fmt.Sprintf("2001:db8::1:%x", i+1)}); !errors.Is(err, errCrowded) {
			t.Fatalf("one more of a network that holds all: %v", err)
		}
		if i%60 == 0 {
			h.enter(t, fmt.Sprintf("2001:db8:0:1::%x", i+1))
			h.enter(t, fmt.Sprintf("10.0.%d.0", i/60))
		}
	}
	h.enter(t, "10.1.0.1")
	h.enter(t, "10.1.0.2")
	if got := len(closed(list)); got != 32 || h.Open() != 64 {
		t.Errorf("%d of the crowd gave way to 32 others; %d places are taken", got, h.Open())
	}
	if _, wait, err := h.room(&conn{from: "10.1.0.4"}); wait <= 0 || err != nil {
		t.Errorf("when none has half of the places: wait %v, %v", wait, err)
	}
	h.clock = h.clock.Add(time.Second)
	h.enter(t, "2001:db8::2:1") // the time of the oldest is over
	for len(h.conns) > 0 {
		h.remove(h.conns[0])
	}
	if len(h.by)+len(h.held) > 0 {
		t.Errorf("no connection is open, but %v, %v hold places", h.by, h.held)
	}
}

// TestWaiting: who waits for a place gets the one that becomes free, and the end of the
// listener ends the wait.
func TestWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{Listener: Listen(l, &Bounds{Places: 1, Hold: time.Hour})}
	h.now = time.Now
	first, err := h.Listener.enter(&guest{from: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	come := make(chan error)
	wait := func(from string) {
		_, err := h.Listener.enter(&guest{from: from})
		come <- err
	}
	go wait("10.0.0.2")
	_ = first.Close() // a guest's is nil
	if err := <-come; err != nil {
		t.Errorf("after a place has become free: %v", err)
	}
	go wait("10.0.0.3")
	if err := errors.Join(h.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	if err := <-come; !errors.Is(err, net.ErrClosed) {
		t.Errorf("at the end: %v", err)
	}
}

// mischief is what hostile clients do with a connection.
var mischief = map[string]func(net.Conn) error{
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

// TestProbeAmongThousands: thousands of connections of strangers take the places and no
// more, and a probe from the same address is answered all the while.
func TestProbeAmongThousands(t *testing.T) {
	const count, most = 1000, 32
	for name, strange := range mischief {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			raw, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b := Bounds{Places: most, Buffer: 32 << 10, Header: 8 << 10, Request: time.Hour, Answer: time.Hour, Idle: time.Hour}
			ctx, end := context.WithCancel(t.Context())
			done := make(chan error)
			mux := http.NewServeMux()
			mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20)) })
			mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			go func() { done <- Serve(ctx, raw, mux, &b) }()
			at := raw.Addr().String()
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			var list hostile.Crowd
			for range 10 {
				list = append(list, hostile.Gather(t, at, count/10, func(_ int, c net.Conn) error { return strange(c) })...)
				r, err := client.Get("http://" + at + "/healthz")
				if err != nil {
					t.Fatalf("a probe with %d connections: %v", len(list), err)
				}
				if r.StatusCode != http.StatusOK {
					t.Errorf("a probe: %s", r.Status)
				}
				_ = r.Body.Close() // short
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

// TestAddress: loopback addresses, of which a process may use any, are one.
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

// TestSparse: what strangers do does not fill the log.
func TestSparse(t *testing.T) {
	var log strings.Builder
	s := sparse{to: &log, limit: rate.NewLimiter(0, 2)}
	for range 100 {
		if n, err := s.Write([]byte("line\n")); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	}
	if log.String() != "line\nline\n" {
		t.Errorf("%q", log.String())
	}
}

// TestRate: an address that opens connections without end is refused those beyond its rate,
// and another one is not; what is known of addresses is bounded.
func TestRate(t *testing.T) {
	h := open(Bounds{Places: 4, Rate: 10})
	taken := 0
	for range 1000 { // in a second
		h.clock = h.clock.Add(time.Millisecond)
		if _, err := h.Listener.enter(&guest{from: "10.0.0.1"}); err == nil {
			taken++
		} else if !errors.Is(err, errCrowded) {
			t.Fatal(err)
		}
	}
	if taken < 20 || taken > 31 {
		t.Errorf("%d connections of one address in a second, want some 30", taken)
	}
	h.enter(t, "10.0.0.2")
	for range 1000 {
		h.enter(t, "127.0.0.1")
	}
	for i := range 3 * ratesMax {
		h.enter(t, fmt.Sprintf("10.1.%d.%d", i/256, i%256))
		if len(h.rates.addresses) > ratesMax {
			t.Fatalf("%d addresses are known", len(h.rates.addresses))
		}
	}
}

// TestRateOfANetwork: a machine that takes another address of its /64 for each connection is
// refused, too; other networks, and an address of the same one within its own rate while one
// other floods, are not.
func TestRateOfANetwork(t *testing.T) {
	const perSecond = 10
	for what, x := range map[string]struct {
		from func(i int) string
		most int
	}{
		"an address for each":         {func(i int) string { return fmt.Sprintf("2001:db8::%x:%x", i/100, i) }, (2 + 2) * networkRate * perSecond},
		"an address, and its network": {func(int) string { return "2001:db8::1" }, (2 + 2) * perSecond},
	} {
		h := open(Bounds{Places: 4, Rate: perSecond})
		taken := 0
		for i := range 2000 { // in two seconds
			h.clock = h.clock.Add(time.Millisecond)
			if _, err := h.Listener.enter(&guest{from: x.from(i)}); err == nil {
				taken++
			} else if !errors.Is(err, errCrowded) {
				t.Fatal(err)
			}
		}
		if taken > x.most+1 || taken < x.most/2 {
			t.Errorf("%s: %d connections in two seconds, want at most %d", what, taken, x.most)
		}
		h.enter(t, "2001:db8:0:1::1")
		if what != "an address for each" {
			h.enter(t, "2001:db8::2")
		}
	}
	h := open(Bounds{Places: 4, Rate: perSecond})
	for i := range 3 * ratesMax {
		h.enter(t, fmt.Sprintf("2001:db8:%x::1", i))
		if len(h.rates.addresses) > ratesMax || len(h.rates.networks) > ratesMax {
			t.Fatalf("%d addresses and %d networks are known", len(h.rates.addresses), len(h.rates.networks))
		}
	}
}

// TestGap: a client that asks without end on one connection, whether it waits for answers or
// not, is answered at a pace; one that comes anew is answered at once.
func TestGap(t *testing.T) {
	const gap = 50 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	go func() { done <- Serve(ctx, l, h, &Bounds{Places: 2, Gap: gap}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // all was read
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
