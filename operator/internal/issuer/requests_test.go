package issuer

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRequestsThatAreNone: a request that no sidecar sends costs at most one answer and a
// bounded time. Only the first request of a connection is answered.
func TestRequestsThatAreNone(t *testing.T) {
	s := &Server{Cache: objects{}, Live: objects{}, CheckAddress: true}
	_, key := signed(t, s)
	good := tokenFor(t, key, "p", "u")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.URL, s.Listener, s.Log = "https://issuer.hpc.svc"+Path, l, slog.New(slog.DiscardHandler)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// answers sends text and returns the statuses of the answers until the server closes the
	// connection.
	answers := func(t *testing.T, text string) (list []int) {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}) //nolint:gosec // a test of requests
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // the server has closed the connection
		if err := c.SetDeadline(time.Now().Add(3 * requestTime)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text) // the server may close the connection first
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				return list
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return list
			}
			list = append(list, r.StatusCode)
		}
	}
	ask := func(method, path, token, more string) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n", method, path, token, more)
	}
	get := ask("GET", PathAddresses+"?part=0", good, "")
	for what, c := range map[string]struct {
		text string
		want string
	}{
		"one":                      {get, "[403]"},
		"pipelined":                {strings.Repeat(get, 100), "[403]"},
		"a body of a question":     {ask("GET", PathAddresses+"?part=0", good, "Content-Length: 100000\r\n") + strings.Repeat("x", 100000), "[403]"},
		"a header of 1 MiB":        {ask("GET", PathAddresses, strings.Repeat("x", 1<<20), ""), "[431]"},
		"100,000 headers":          {ask("GET", PathAddresses, good, strings.Repeat("a:b\r\n", 100_000)), "[431]"},
		"a long token":             {ask("GET", PathAddresses+"?part=0", strings.Repeat("x", tokenMax+1), ""), "[401]"},
		"two tokens":               {ask("GET", PathAddresses+"?part=0", good+", Bearer "+good, ""), "[401]"},
		"a token that was changed": {ask("GET", PathAddresses+"?part=0", changed(t, good), ""), "[401]"},
		"a body without its bytes": {ask("POST", Path, good, "Content-Length: 500\r\n"), "[400]"},
		"a body without end":       {ask("POST", Path, good, "Transfer-Encoding: chunked\r\n") + strings.Repeat("fff\r\n"+strings.Repeat("x", 0xfff)+"\r\n", 100), "[400]"},
		"two lengths":              {ask("POST", Path, good, "Content-Length: 5\r\nContent-Length: 6\r\n") + "xxxxx", "[400]"},
		"smuggled":                 {ask("POST", Path, good, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + get, "[400]"},
		"another method":           {ask("TRACE", Path, good, ""), "[405]"},
		"another path":             {ask("GET", "/v1/../metrics", good, ""), "[307]"},
		"HTTP/2":                   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "[400]"},
		"no HTTP":                  {"\x00\x01\x02\r\n\r\n", "[400]"},
		"nothing":                  {"", "[]"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // some connections end by a timeout of the server
			if got := fmt.Sprint(answers(t, c.text)); got != c.want {
				t.Errorf("answers %s, want %s", got, c.want)
			}
		})
	}
}

// changed returns a token whose signature does not match its text.
func changed(t *testing.T, token string) string {
	t.Helper()
	head, rest, ok := strings.Cut(token, ".")
	if !ok {
		t.Fatal("no token")
	}
	return head + "." + strings.Replace(rest, "e", "f", 1)
}
