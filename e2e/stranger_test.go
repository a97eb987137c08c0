package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestStrangers checks that a job has right results while unauthenticated clients attack all
// of its sockets.
func TestStrangers(t *testing.T) {
	t.Parallel()
	j := start(t, 4, 2, ring("-rounds", "6000", "-pause", "1ms", "-bytes", "20000")...)
	for rank := range 4 { // until all have attached a stranger may be taken for one
		j.waitFor(fmt.Sprintf(`rank %d is process (\d+)`, rank))
	}
	j.waitTotals("the first connection", func(c totals) bool { return c.BytesIn > 0 }) // until then a sidecar may not listen
	doc, err := bootstrap.Load(filepath.Join(j.dir, "bootstrap.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range doc.Pods {
		attackSocket(t, filepath.Join(j.dir, fmt.Sprintf("pod%d", i), "sidecar.sock"))
		attackAddress(t, doc.Pods[i].Address, j.dir)
	}
	for path, want := range map[string]int{
		"/debug/break/9": http.StatusNotFound, "/debug/break/0": http.StatusNotFound, "/debug/break/x": http.StatusBadRequest,
	} {
		resp, err := j.sidecar(http.MethodPost, path, "pod0")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // short
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	code, out := j.wait()
	if code != 0 || !strings.Contains(out, "every byte right") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	j.left()
}

// attackSocket sends to the applications' socket what no application sends.
func attackSocket(t *testing.T, path string) {
	t.Helper()
	taken, far := shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll}, shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Rank: 1 << 20}
	taken.Rank = 0
	if strings.Contains(path, "pod1") {
		taken.Rank = 2
	}
	for what, raw := range map[string][]byte{
		"hosted": taken.Encode(), "not hosted": far.Encode(), "no hello": bytes.Repeat([]byte("garbage "), 8),
		"hello message": []byte("x"), "": nil,
	} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // what counts is what the job does
		if raw == nil {
			continue // it stays and is silent
		}
		if err := c.SetDeadline(time.Now().Add(jobTime)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, shm.WelcomeBytes)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		w, err := shm.DecodeWelcome(b[:n])
		if err != nil || w.Accepted || what != "hosted" && !strings.Contains(w.Text, what) || what == "hosted" && !strings.Contains(w.Text, "is attached already") {
			t.Errorf("%s: %+v, %v", what, w, err)
		}
	}
}

// attackAddress sends to the sidecars' address what no sidecar of the job sends.
func attackAddress(t *testing.T, address, dir string) {
	t.Helper()
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(rand.Uint32()) //nolint:gosec // anything does
	}
	for _, raw := range [][]byte{[]byte("GET / HTTP/1.0\r\n\r\n"), random, append([]byte("OUTRDAT1"), random...), append([]byte{22, 3, 1}, random...), {0}} {
		c := connect(t, address)
		_, _ = c.Write(raw) // it may be cut off half way
		if raw[0] != 22 {   // TLS waits for more
			_, _ = io.Copy(io.Discard, c)
		}
	}
	for range 20 {
		connect(t, address) // silent to the end
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for what, trust := range map[string][]byte{"its own authority": nil, "the job's authority": ca} {
		c := tls.Client(&answered{Conn: connect(t, address)}, stranger(t, trust))
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil {
			t.Errorf("a sidecar of another job, trusting %s, was let in", what)
		}
	}
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // what counts is what the job does
	if err := c.SetDeadline(time.Now().Add(jobTime)); err != nil {
		t.Fatal(err)
	}
	return c
}

// answered reads the first byte of a sidecar, which says that it runs.
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

// stranger has the credentials of pod 1 of another job.
func stranger(t *testing.T, trust []byte) *tls.Config {
	t.Helper()
	a, err := pki.New("another job", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Leaf(1)
	if err != nil {
		t.Fatal(err)
	}
	if trust == nil {
		trust = a.CA()
	}
	files := map[string][]byte{"ca": trust, "cert": leaf.Cert, "key": leaf.Key}
	dir := t.TempDir()
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := pki.Config(filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
