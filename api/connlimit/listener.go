// Package connlimit bounds what untrusted clients cost a server: the number of
// connections, and the bytes and the time of each. It owns the choice of the connection
// that is closed when all slots are taken: the oldest connection of the address with
// the most connections. A new connection therefore never waits behind connections that
// others hold, and a client that connects rarely, sends its request at once and
// disconnects, such as a kubelet's probe, always gets an answer.
package connlimit

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds are the bounds of one listener.
type Bounds struct {
	Slots int // maximum number of open connections; at least 1
	// Share is the maximum number of slots of one address; 0: all. If it is set, all
	// addresses of one IPv6 /64 together, of which one machine may use any number, have
	// half of the slots, and more while others are free. If other networks need these,
	// connections of the /64 are closed, and its new connections are refused.
	Share int
	// Hold is how long a connection keeps its slot although others wait, unless its
	// address holds more than others; 0: no time. With Hold, the handshakes of many
	// clients that connect at once are completed instead of started again: a new
	// connection waits until the oldest one has had its time, and a connection of an
	// address with a full share is refused.
	Hold time.Duration
	// Buffer is the size of the kernel's buffer for each direction of a connection, in
	// bytes, of which the kernel allocates twice as much; 0: the system's default.
	Buffer int
	// Rate is how many connections a second one address may open, with a burst of twice
	// as many. Further ones are closed at once, which costs a hundredth of an answer.
	// 0: no bound. All addresses of one IPv6 /64 together, of which one machine may use
	// any number, may open networkRate times as many. Loopback has no such bound, since
	// its processes share the processors anyway.
	Rate float64
	// Gap is the minimum time between the starts of two requests of one connection; 0:
	// none. With Rate, it bounds the processor time that untrusted clients cost the
	// server.
	Gap time.Duration
	// Header bounds a request's header in bytes; net/http adds 4 KiB.
	Header int
	// Request is the time from the first byte of a request to its last. Answer is the
	// time until the last byte of an answer is passed to the kernel, and again until
	// the client has acknowledged it. Idle is the time between requests.
	Request, Answer, Idle time.Duration
}

// Listener is a listener whose connections are bounded.
type Listener struct {
	net.Listener
	bounds Bounds
	freed  chan struct{} // signals a free slot
	done   chan struct{}
	end    sync.Once

	mu        sync.Mutex     // guards the fields below
	conns     []*conn        // open connections, the oldest first
	by        map[string]int // number of open connections of each address
	byNetwork map[string]int // number of open connections of each /64
	rates     *Rates
	now       func() time.Time
}

// majority returns the network that holds more than half of the slots; empty if none
// does.
func (l *Listener) majority() string {
	if l.bounds.Share >= l.bounds.Slots {
		return ""
	}
	for network, n := range l.byNetwork {
		if 2*n > l.bounds.Slots {
			return network
		}
	}
	return ""
}

// Listen returns a Listener with bounds.
func Listen(l net.Listener, b *Bounds) *Listener {
	bounds := *b
	bounds.Slots = max(bounds.Slots, 1)
	if bounds.Share <= 0 || bounds.Share > bounds.Slots {
		bounds.Share = bounds.Slots
	}
	return &Listener{Listener: l, bounds: bounds, freed: make(chan struct{}, 1), done: make(chan struct{}), by: map[string]int{}, byNetwork: map[string]int{}, rates: NewRates(bounds.Rate), now: time.Now}
}

// conn is a connection with a slot.
type conn struct {
	net.Conn
	listener *Listener
	from     string
	network  string // network (/64) of the address from
	since    time.Time

	mu     sync.Mutex
	cancel func() // cancels the contexts of the connection's requests; nil: it has none

	last time.Time // start of the connection's last request; the requests of a connection are sequential
}

// Accept returns the next connection that gets a slot.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.limit(raw)
		c, err := l.admit(raw)
		if err != nil {
			abort(raw)
			if errors.Is(err, errShare) {
				continue
			}
			return nil, err
		}
		return c, nil
	}
}

// Close ends the listener, and an Accept that waits for a slot.
func (l *Listener) Close() error {
	l.end.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Open returns the number of connections with a slot.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// errShare means that the address or network of a new connection has its share of the
// slots, or has opened too many connections.
var errShare = errors.New("its address has its share of the connections")

// admit gives a connection a slot.
func (l *Listener) admit(raw net.Conn) (*conn, error) {
	c := &conn{Conn: raw, listener: l, from: Address(raw.RemoteAddr())}
	c.network = Network(c.from)
	l.mu.Lock()
	tooMany := l.rates.TooMany(c.from)
	l.mu.Unlock()
	if tooMany {
		return nil, errShare
	}
	for {
		l.mu.Lock()
		evicted, wait, err := l.slotFor(c)
		if err == nil && wait <= 0 {
			if evicted != nil {
				l.remove(evicted)
			}
			c.since = l.now()
			l.conns = append(l.conns, c)
			l.by[c.from]++
			if c.network != "" {
				l.byNetwork[c.network]++
			}
		}
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if wait <= 0 {
			if evicted != nil {
				evicted.evict()
			}
			return c, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.freed:
		case <-l.done:
			err = net.ErrClosed
		}
		t.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// slotFor returns the connection to close for a new one; nil if there is a free slot. wait
// is the time until one may be closed.
func (l *Listener) slotFor(c *conn) (evicted *conn, wait time.Duration, err error) {
	from := c.from
	own, most := l.by[from], 0
	for _, n := range l.by {
		most = max(most, n)
	}
	full := len(l.conns) >= l.bounds.Slots
	switch {
	case own >= l.bounds.Share || full && own == most:
		evicted = l.oldest(func(c *conn) bool { return c.from == from })
		if l.timeLeft(evicted) > 0 {
			return nil, 0, errShare
		}
	case full:
		evicted = l.oldest(func(c *conn) bool { return l.by[c.from] == most })
		if most <= own+1 {
			wait = l.timeLeft(evicted)
		}
		// New connections are accepted one after the other: if connections of a network
		// with more than half of the slots waited here, all others would wait behind
		// them.
		switch majority := l.majority(); {
		case majority == "" || wait <= 0:
		case majority != c.network:
			evicted, wait = l.busiest(majority), 0
		default:
			return nil, 0, errShare
		}
	}
	return evicted, wait, nil
}

// busiest returns the oldest connection of the address with the most connections in a
// network. Precondition: the network has a connection.
func (l *Listener) busiest(network string) *conn {
	most := 0
	for _, c := range l.conns {
		if c.network == network {
			most = max(most, l.by[c.from])
		}
	}
	return l.oldest(func(c *conn) bool { return c.network == network && l.by[c.from] == most })
}

// timeLeft returns the rest of the time for which a connection keeps its slot.
func (l *Listener) timeLeft(c *conn) time.Duration { return l.bounds.Hold - l.now().Sub(c.since) }

// oldest returns the oldest connection for which of returns true. Precondition: there
// is one.
func (l *Listener) oldest(of func(*conn) bool) *conn {
	return l.conns[slices.IndexFunc(l.conns, of)]
}

// remove releases a connection's slot. It reports whether the connection had one.
func (l *Listener) remove(c *conn) bool {
	at := slices.Index(l.conns, c)
	if at < 0 {
		return false
	}
	l.conns = slices.Delete(l.conns, at, at+1)
	if l.by[c.from]--; l.by[c.from] == 0 {
		delete(l.by, c.from)
	}
	if l.byNetwork[c.network]--; l.byNetwork[c.network] <= 0 {
		delete(l.byNetwork, c.network)
	}
	return true
}

// Close closes the connection, and then releases its slot for the next one.
func (c *conn) Close() error {
	c.stop()
	err := c.Conn.Close()
	c.listener.mu.Lock()
	had := c.listener.remove(c)
	c.listener.mu.Unlock()
	if had {
		select {
		case c.listener.freed <- struct{}{}:
		default:
		}
	}
	return err
}

// evict closes a connection that has lost its slot, and cancels its requests.
func (c *conn) evict() {
	c.stop()
	abort(c.Conn)
}

func (c *conn) stop() {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// abort closes a connection without waiting for data that its peer has not
// acknowledged. The kernel then discards that data.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // otherwise the connection is closed in order
	}
	_ = c.Close() // the connection is abandoned
}

// limit bounds the memory of the kernel for a connection, and the time for which the
// kernel keeps it after the server has closed it.
func (l *Listener) limit(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if b := l.bounds.Buffer; b > 0 { // fails for a connection that is closed already
		_ = t.SetReadBuffer(b)
		_ = t.SetWriteBuffer(b)
	}
	if l.bounds.Answer <= 0 {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.bounds.Answer.Milliseconds()))
	})
}
