package obs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// TestThousandsOfIdleConnections checks that clients that open thousands of connections,
// half of which have sent a request and half a part of a header, hold at most WatchSlots
// of them, and that the kubelet's probe is answered meanwhile.
func TestThousandsOfIdleConnections(t *testing.T) {
	const count = 3000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	counts := &counting{Listener: l}
	go func() { done <- Serve(ctx, counts, Handler(sources())) }()
	at := l.Addr().String()
	probe := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range count {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // most have ended
		request := "GET /report HTTP/1.1\r\nHost: x\r\n"
		if i%2 == 0 {
			request += "\r\n"
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
		if i%500 != 499 {
			continue
		}
		r, err := probe.Get("http://" + at + "/healthz")
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("a probe after %d connections: %v", i+1, err)
		}
		_ = r.Body.Close() // the body is short
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	most := counts.most.Load()
	if most > memory.WatchSlots+1 { // a new connection is accepted before another one closes
		t.Errorf("%d connections were open at once, want %d at most", most, memory.WatchSlots)
	}
}

// counting counts the open connections, and the most that were open at once.
type counting struct {
	net.Listener
	open, most atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.most.Store(max(l.most.Load(), l.open.Add(1))) // one goroutine accepts
		c = &counted{Conn: c, of: l}
	}
	return c, err
}

type counted struct {
	net.Conn
	of  *counting
	end sync.Once
}

func (c *counted) Close() error {
	c.end.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}

// TestSlowReaders checks that any number of slow readers of an answer keeps at most two of
// its bodies, and that others are answered meanwhile.
func TestSlowReaders(t *testing.T) {
	made := 0
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			made++
			_, _ = fmt.Fprint(w, made)
		}))
		r := httptest.NewRequest(http.MethodGet, "/report", nil)
		var slow []*answer
		for range 10 {
			slow = append(slow, a.wait(r))
			time.Sleep(2 * snapshotAge)
		}
		if made != 2 {
			t.Errorf("%d bodies were made for clients that still read, want 2", made)
		}
		ask := func(want string) {
			t.Helper()
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Body.String() != want {
				t.Errorf("the answer is %q, want %q", w.Body, want)
			}
		}
		ask("2")
		for _, x := range slow {
			a.read(x)
		}
		ask("3")
		ask("3")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		a.turn <- struct{}{}
		if x := a.wait(r.WithContext(gone)); x != nil {
			t.Error("a client that has gone waits for its turn")
		}
	})
}

// TestHeaderIsBounded checks that a header that is longer than the bound is refused.
func TestHeaderIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, HealthHandler(sources())) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X", strings.Repeat("x", 16<<10))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // the body is short
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 16 KiB: %s", answer.Status)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
