package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// answerTime is how long an unauthenticated client waits for an answer that it should not get.
const answerTime = 15 * time.Second

// between is the pause after a try: a sidecar logs one line a second about refused connections.
const between = 1200 * time.Millisecond

// intrude tries to connect to another job's sidecar, and prints a line for each try: its name, and
// refused or taken. DIR has pairs of a certificate and a key, NAME.crt and NAME.key.
func intrude(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("intrude HOST PEERS-PORT METRICS-PORT DIR")
	}
	peers, metrics := net.JoinHostPort(args[0], args[1]), "http://"+net.JoinHostPort(args[0], args[2])
	certs, err := filepath.Glob(filepath.Join(args[3], "*.crt"))
	if err != nil {
		return err
	}
	slices.Sort(certs)
	tries := []try{
		{"garbage", saying("GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 1000))},
		{"silence", saying("")},
		{"ticket", saying("OUTRDAT1" + strings.Repeat("7", 200))}, // the ticket of a data connection, guessed
		{"anonymous", shaking(nil)},
	}
	for _, file := range certs {
		pair, err := tls.LoadX509KeyPair(file, strings.TrimSuffix(file, ".crt")+".key")
		if err != nil {
			return err
		}
		tries = append(tries, try{strings.TrimSuffix(filepath.Base(file), ".crt"), shaking(&pair)})
	}
	for _, t := range tries {
		if err := t.at(ctx, peers); err != nil {
			return err
		}
		time.Sleep(between)
	}
	for _, r := range [][2]string{
		{http.MethodPost, "/debug/break/1"},
		{http.MethodGet, "/debug/flight"},
		{http.MethodGet, "/debug/pprof/"},
		{http.MethodPost, "/report"},
		{http.MethodDelete, "/metrics"},
	} {
		if err := request(ctx, r[0], metrics+r[1], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// try is one attempt: talk sends something, and returns the connection on which an answer would
// arrive.
type try struct {
	name string
	talk func(net.Conn) net.Conn
}

// saying returns an attempt that sends words in plain text.
func saying(words string) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn {
		_, _ = io.WriteString(c, words) // only the answer matters
		return c
	}
}

// shaking returns an attempt that makes a TLS handshake with this certificate and accepts any server.
func shaking(pair *tls.Certificate) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn {
		own := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true} //nolint:gosec // the probe accepts any server
		if pair != nil {
			own.Certificates = []tls.Certificate{*pair}
		}
		return tls.Client(c, own)
	}
}

// at prints whether a sidecar answers: the sidecar sends its greeting first to a client that it accepts.
func (t *try) at(ctx context.Context, address string) error {
	c, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	n, err := t.talk(&answered{Conn: c}).Read(make([]byte, 1))
	switch {
	case n > 0:
		fmt.Println(t.name, "taken")
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println(t.name, "held")
	default:
		fmt.Println(t.name, "refused:", err)
	}
	return nil
}

// answered removes the first byte that a sidecar sends. Every client gets it: it says that the
// sidecar runs, and does not accept the connection.
type answered struct {
	net.Conn
	heard bool
}

func (a *answered) Read(b []byte) (int, error) {
	if !a.heard {
		if _, err := a.Conn.Read(make([]byte, 1)); err != nil {
			return 0, err
		}
		a.heard = true
	}
	return a.Conn.Read(b)
}

// request prints the answer of a sidecar's web server to a request.
func request(ctx context.Context, method, url, path string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Timeout: answerTime}).Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	word := "taken"
	if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusMethodNotAllowed {
		word = "refused:"
	}
	fmt.Println(method+path, word, answer.Status)
	return nil
}
