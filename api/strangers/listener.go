// Package strangers bounds what strangers cost a server: the connections that they hold,
// and the bytes and the time of each. A newcomer never waits behind connections that
// others hold: if no place is free, the oldest connection of the address with the most
// connections is closed. A client that comes seldom, asks at once and goes, as the
// probes of a kubelet do, therefore always gets an answer.
package strangers

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one listener.
type Bounds struct {
	Places int // connections at once; at least 1
	// Share is how many of them one address may hold; 0: all. Where an address has a share, all
	// addresses of one /64 of IPv6, of which a machine may use any number, have half of the places
	// together, and more while others are free: then those of other networks take them from it,
	// and its own newcomers are refused.
	Share int
	// Hold is how long a connection keeps its place although others come, unless its
	// address holds more than others; 0: it has no such time. With a time, handshakes of
	// many clients that come at once are finished instead of begun again: the newcomer
	// waits until the oldest connection has had its time, and one of an address that has
	// its share is refused.
	Hold time.Duration
	// Buffer is the kernel's memory for each direction of a connection, in bytes, of
	// which the kernel takes twice as much; 0: as the system has it.
	Buffer int
	// Rate is how many connections a second one address may open, and twice as many at once;
	// the others are closed at once, which costs a hundredth of an answer. 0: any number.
	// Addresses of one /64 of IPv6, of which a machine may use any number, may open networkRate
	// as many together. Loopback has no such bound: its processes share the processors anyway.
	Rate float64
	// Gap is the least time between the beginnings of two requests of one connection; 0:
	// none. With Rate it bounds the processor time that strangers take from the server.
	Gap time.Duration
	// Header bounds a request's header in bytes; net/http adds 4 KiB.
	Header int
	// Times of a request, from its first byte to its last; of its answer, until its last
	// byte is handed to the kernel and again until the client has acknowledged it; and
	// between requests.
	Request, Answer, Idle time.Duration
}

// Listener is a listener whose connections are bounded.
type Listener struct {
	net.Listener
	bounds Bounds
	freed  chan struct{} // a place has become free
	done   chan struct{}
	end    sync.Once

	mu    sync.Mutex     // guards what follows
	conns []*conn        // oldest first
	by    map[string]int // connections, by address
	held  map[string]int // likewise, by /64
	rates *Rates
	now   func() time.Time
}

// crowding is the network that holds more than half of the places; empty: none does.
func (l *Listener) crowding() string {
	if l.bounds.Share >= l.bounds.Places {
		return ""
	}
	for network, n := range l.held {
		if 2*n > l.bounds.Places {
			return network
		}
	}
	return ""
}

// Listen bounds the connections of a listener.
func Listen(l net.Listener, b *Bounds) *Listener {
	bounds := *b
	bounds.Places = max(bounds.Places, 1)
	if bounds.Share <= 0 || bounds.Share > bounds.Places {
		bounds.Share = bounds.Places
	}
	return &Listener{Listener: l, bounds: bounds, freed: make(chan struct{}, 1), done: make(chan struct{}), by: map[string]int{}, held: map[string]int{}, rates: NewRates(bounds.Rate), now: time.Now}
}

// conn is a connection with a place.
type conn struct {
	net.Conn
	listener *Listener
	from     string
	network  string // of from
	since    time.Time

	mu     sync.Mutex
	cancel func() // of its requests' contexts; nil: none

	last time.Time // the beginning of its last request; its requests follow each other
}

// Accept takes the next connection that gets a place.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.limit(raw)
		c, err := l.enter(raw)
		if err != nil {
			abort(raw)
			if errors.Is(err, errCrowded) {
				continue
			}
			return nil, err
		}
		return c, nil
	}
}

// Close ends the listener, and an Accept that waits for a place.
func (l *Listener) Close() error {
	l.end.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Open counts the connections that have a place.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// errCrowded says that a newcomer's address or network has its share of the places, or has come
// too often.
var errCrowded = errors.New("its address has its share of the connections")

// enter gives a connection a place.
func (l *Listener) enter(raw net.Conn) (*conn, error) {
	c := &conn{Conn: raw, listener: l, from: Address(raw.RemoteAddr())}
	c.network = Network(c.from)
	l.mu.Lock()
	often := l.rates.Often(c.from)
	l.mu.Unlock()
	if often {
		return nil, errCrowded
	}
	for {
		l.mu.Lock()
		goes, wait, err := l.room(c)
		if err == nil && wait <= 0 {
			if goes != nil {
				l.remove(goes)
			}
			c.since = l.now()
			l.conns = append(l.conns, c)
			l.by[c.from]++
			if c.network != "" {
				l.held[c.network]++
			}
		}
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if wait <= 0 {
			if goes != nil {
				goes.sendAway()
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

// room finds the connection that has to go so that a newcomer can come; nil: there is a free
// place. Wait is how long until one may be closed.
func (l *Listener) room(newcomer *conn) (goes *conn, wait time.Duration, err error) {
	from := newcomer.from
	own, most := l.by[from], 0
	for _, n := range l.by {
		most = max(most, n)
	}
	full := len(l.conns) >= l.bounds.Places
	switch {
	case own >= l.bounds.Share || full && own == most:
		goes = l.oldest(func(c *conn) bool { return c.from == from })
		if l.left(goes) > 0 {
			return nil, 0, errCrowded
		}
	case full:
		goes = l.oldest(func(c *conn) bool { return l.by[c.from] == most })
		if most <= own+1 {
			wait = l.left(goes)
		}
		// Newcomers are let in one after the other: if those of a crowd waited, all would wait
		// behind them.
		switch crowding := l.crowding(); {
		case crowding == "" || wait <= 0:
		case crowding != newcomer.network:
			goes, wait = l.busiest(crowding), 0
		default:
			return nil, 0, errCrowded
		}
	}
	return goes, wait, nil
}

// busiest is the oldest connection of the address of a network that holds most, of which there
// is one.
func (l *Listener) busiest(network string) *conn {
	most := 0
	for _, c := range l.conns {
		if c.network == network {
			most = max(most, l.by[c.from])
		}
	}
	return l.oldest(func(c *conn) bool { return c.network == network && l.by[c.from] == most })
}

// left is the rest of the time for which a connection keeps its place.
func (l *Listener) left(c *conn) time.Duration { return l.bounds.Hold - l.now().Sub(c.since) }

// oldest is the oldest of some connections, of which there is one.
func (l *Listener) oldest(of func(*conn) bool) *conn {
	return l.conns[slices.IndexFunc(l.conns, of)]
}

// remove takes a connection's place; it reports whether the connection had one.
func (l *Listener) remove(c *conn) bool {
	at := slices.Index(l.conns, c)
	if at < 0 {
		return false
	}
	l.conns = slices.Delete(l.conns, at, at+1)
	if l.by[c.from]--; l.by[c.from] == 0 {
		delete(l.by, c.from)
	}
	if l.held[c.network]--; l.held[c.network] <= 0 {
		delete(l.held, c.network)
	}
	return true
}

// Close gives the place back, once the connection is closed: the next one has it then.
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

// sendAway ends a connection that has lost its place, and what is done for it.
func (c *conn) sendAway() {
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

// abort closes a connection without waiting for what its peer has not taken, of which
// the kernel keeps nothing then.
func abort(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // else it is closed in order
	}
	_ = c.Close() // it is given up
}

// limit bounds what the kernel keeps for a connection, in bytes and, once the server
// has closed it, in time.
func (l *Listener) limit(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if b := l.bounds.Buffer; b > 0 { // a connection that is over already takes neither
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
