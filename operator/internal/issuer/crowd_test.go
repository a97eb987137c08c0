package issuer

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/connlimit/hostile"
)

// doors is one listener for several loopback addresses. The connections to each address seem
// to come from a different pod.
type doors struct {
	net.Listener
	come chan net.Conn
	end  sync.Once
	done chan struct{}

	taken atomic.Int64
}

type from struct {
	net.Conn
	pod string
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.pod), Port: 1} }

func (d *doors) open(t *testing.T, pod string) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the test has ended
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case d.come <- &from{c, pod}:
			case <-d.done:
				_ = c.Close() // the listener is closed
				return
			}
		}
	}()
	return l.Addr().String()
}

func (d *doors) Accept() (net.Conn, error) {
	select {
	case c := <-d.come:
		d.taken.Add(1)
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *doors) Close() error {
	d.end.Do(func() { close(d.done) })
	return nil
}

// TestOnePodTakesNoMoreThanItsShare: thousands of incomplete handshakes and requests of one
// pod hold at most its share of the connections, and the sidecar of another pod gets an
// answer.
func TestOnePodTakesNoMoreThanItsShare(t *testing.T) {
	keys, err := NewKeys([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	d := &doors{come: make(chan net.Conn), done: make(chan struct{})}
	s := &Server{Keys: keys, URL: "https://issuer.hpc.svc" + Path, Listener: d, Log: slog.New(slog.DiscardHandler), CheckAddress: true}
	bad, good := d.open(t, "10.0.0.1"), d.open(t, "10.0.0.2")
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	trust := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // a test of connections
	list := hostile.Gather(t, bad, 6000, func(i int, c net.Conn) error {
		if i >= callers.Share/2 {
			return hostile.Says("\x16\x03\x01\x02")(i, c)
		}
		_, err := io.WriteString(tls.Client(c, trust), "POST "+Path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ")
		return err
	})
	for d.taken.Load() < 6000 {
		time.Sleep(time.Millisecond) // until the server has accepted all of them
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	defer client.CloseIdleConnections()
	for _, body := range []string{"x", strings.Repeat("x", 1<<20)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+good+Path, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer x")
		answer, err := client.Do(r)
		if err != nil && len(body) == 1 {
			t.Fatalf("a sidecar of another pod: %v", err)
		}
		if err != nil {
			continue // the server closed the connection while the client was sending
		}
		_ = answer.Body.Close() // the body is short
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%d bytes: %s", len(body), answer.Status)
		}
	}
	if open := list.Open(t); open > callers.Share {
		t.Errorf("the pod holds %d connections, want %d at most", open, callers.Share)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
