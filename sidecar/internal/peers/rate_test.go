package peers

import (
	"net"
	"testing"
	"time"
)

// flow is a listener with connections from addresses that a test chooses.
type flow struct {
	conns chan net.Conn
	over  chan struct{}
}

func (c *flow) Accept() (net.Conn, error) {
	select {
	case conn := <-c.conns:
		return conn, nil
	case <-c.over:
		return nil, net.ErrClosed
	}
}

func (c *flow) Close() error {
	select {
	case <-c.over:
	default:
		close(c.over)
	}
	return nil
}

func (c *flow) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection from an address. It sends nothing, and counts the answers to it.
type from struct {
	net.Conn
	address  string
	answered chan<- string
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 4711} }

func (f *from) Write(b []byte) (int, error) {
	f.answered <- f.address
	return len(b), nil
}

// TestHandshakesHaveARate checks that connections of one address beyond its rate are
// closed before a handshake begins, and that they do not delay a peer of another address.
func TestHandshakesHaveARate(t *testing.T) {
	const flood = 5 * handshakeRate
	j := newJob(t, "j", time.Hour)
	cfg := j.nodes(1, []int{0})[0].cfg
	l := &flow{conns: make(chan net.Conn), over: make(chan struct{})}
	cfg.Pending = 4 * flood // otherwise the limiter closes most of them
	m := New(cfg, l)
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	answered := make(chan string, 2*flood)
	open := func(address string) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close() })
		l.conns <- &from{theirs, address, answered}
	}
	begun := time.Now()
	for range flood {
		open("10.0.0.9")
	}
	open("10.0.0.10")
	most := 2*handshakeRate + int(time.Since(begun).Seconds()*handshakeRate) + 1
	taken := 0
	for address := ""; address != "10.0.0.10"; taken++ {
		select {
		case address = <-answered:
		case <-time.After(patience):
			t.Fatal("still waiting for the answer to a peer of another address")
		}
	}
	if taken > most || taken < 2*handshakeRate {
		t.Errorf("%d of %d connections of one address were answered, want %d to %d", taken, flood, 2*handshakeRate, most)
	}
	_ = m.Close() // Serve ends
	_ = l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
