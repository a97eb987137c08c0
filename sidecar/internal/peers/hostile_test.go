package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/admission"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// dialRaw connects to the node.
func (n *node) dialRaw() net.Conn {
	n.t.Helper()
	c, err := net.Dial("tcp", n.cfg.Addresses[n.cfg.Self])
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() }) // most are closed already
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		n.t.Fatal(err)
	}
	return &observedConn{c, new(dialResult)}
}

// refuses executes attack on a connection to the node, which must close it, hand nothing
// over, and log a line with want.
func (n *node) refuses(want string, attack func(net.Conn)) {
	n.t.Helper()
	had := n.Refused()
	c := n.dialRaw()
	attack(c)
	if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
		n.t.Errorf("the node does not close the connection: %v", err)
	}
	wait(n.t, "the refusal", func() bool { return n.Refused() == had+1 })
	if !n.log.has(want) {
		n.t.Errorf("no %q in the log:\n%s", want, n.log)
	}
	for peer := range n.cfg.Addresses {
		if n.count(link.Peer(peer)) != 0 {
			n.t.Errorf("a connection to %d was handed over", peer)
		}
	}
	_ = c.Close() // it is not needed any more
}

func write(b []byte) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write(b) } }

func TestGarbage(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(2, []int{1}, func(c *Config) { c.HandshakeTimeout = 100 * time.Millisecond })[0]
	n.refuses("first byte 0x47", write([]byte("GET / HTTP/1.1\r\n\r\n")))
	n.refuses("first byte 0x0", write(make([]byte, 1000)))
	n.refuses("neither TLS nor a data connection\"", write([]byte("OUTRAGEOUS"+string(make([]byte, 100)))))
	n.refuses("unknown, used or expired", write([]byte(dataMagic+string(make([]byte, 100)))))
	n.refuses("TLS: ", write(append([]byte{tlsHandshake, 3, 1, 0, 5}, "hello"...)))
	n.refuses("TLS: ", write(bytes.Repeat([]byte{tlsHandshake}, 70000)))
	n.refuses("no byte arrived", func(net.Conn) {})
	n.refuses("TLS: ", write([]byte{tlsHandshake, 3}))
	n.refuses("data connection: ", write([]byte(dataMagic)))
}

// TestHalfAHandshake checks that a client that stops in the middle of TLS is refused.
func TestHalfAHandshake(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{1}, func(c *Config) { c.HandshakeTimeout = 100 * time.Millisecond })[0]
	for k := range 3 {
		n.refuses("timeout", func(c net.Conn) {
			x := &stops{Conn: c, after: k}
			_ = tls.Client(x, j.credentials(0)).Handshake() // it cannot succeed
		})
	}
}

// stops discards all but the first writes.
type stops struct {
	net.Conn
	after int
}

func (s *stops) Write(b []byte) (int, error) {
	if s.after--; s.after < 0 {
		return 0, io.ErrClosedPipe
	}
	return s.Conn.Write(b)
}

// handshakeWith executes a TLS handshake with other credentials.
func handshakeWith(c *tls.Config) func(net.Conn) {
	return func(conn net.Conn) {
		t := tls.Client(conn, c)
		_ = t.Handshake()                 // the node's verdict counts
		_, _ = t.Read(make([]byte, 1000)) // and arrives after this side's handshake
	}
}

func TestOtherCredentials(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{1})[0]
	trusting := func(c *tls.Config) *tls.Config {
		c.VerifyConnection = nil // it accepts every server
		return c
	}
	n.refuses("signed by unknown authority", handshakeWith(trusting(newJob(t, "j", time.Hour).credentials(0))))
	n.refuses("expired", handshakeWith(trusting(newJob(t, "j", -time.Second).credentials(0))))
	n.refuses("pod 9", handshakeWith(j.credentials(9)))
	n.refuses("pod 1", handshakeWith(j.credentials(1)))
	old := j.credentials(0)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	n.refuses("unsupported version", handshakeWith(old))
	anonymous := j.credentials(0)
	anonymous.Certificates = nil
	n.refuses("didn't provide a certificate", handshakeWith(anonymous))
}

// TestAnotherJob checks that a certificate of the same authority for another job is
// refused: it contains the job's id.
func TestAnotherJob(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{1}, func(c *Config) { c.Job = "another" })[0]
	n.refuses("no pod of job another", handshakeWith(j.credentials(0)))
}

// greet sends the beginning of a control connection of pod 0.
func greet(j *job, version, flags uint16, pod uint32, incarnation uint64) func(net.Conn) {
	return func(c net.Conn) {
		s := tls.Client(c, j.credentials(0))
		var b [greetingBytes]byte
		binary.LittleEndian.PutUint16(b[0:], version)
		binary.LittleEndian.PutUint16(b[2:], flags)
		binary.LittleEndian.PutUint32(b[4:], pod)
		binary.LittleEndian.PutUint64(b[8:], incarnation)
		_, _ = s.Write(b[:]) // the node's verdict counts
	}
}

// TestWrongGreeting checks that a greeting must agree with the certificate.
func TestWrongGreeting(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(3, []int{2})[0]
	n.refuses("speaks protocol version 99, this sidecar version 2", greet(j, 99, 0, 0, 1))
	n.refuses("certificate of pod 0, greeting of pod 1", greet(j, wire.Version, 0, 1, 1))
	n.refuses("pod 0 has connection flags 0x1, this sidecar 0x0", greet(j, wire.Version, flagEncrypt, 0, 1))
	n.refuses("greets without its incarnation", greet(j, wire.Version, 0, 0, 0))
}

// TestWrongPodAnswers checks that only the pod of an address may answer there.
func TestWrongPodAnswers(t *testing.T) {
	n := newJob(t, "j", time.Hour).nodes(3, []int{0, 2}, func(c *Config) {
		if c.Self == 0 {
			c.Addresses = []string{c.Addresses[0], c.Addresses[2], c.Addresses[1]}
		}
	})
	n[0].Connect(1)
	wait(t, "a log line about it", func() bool { return n[0].log.has("pod 2 answers at the address of pod 1") })
	n[0].Cancel(1)
	if n[0].count(1)+n[0].count(2)+n[1].count(0) != 0 {
		t.Error("a connection was handed over")
	}
}

// TestRefusalsFillNoLog checks that refused connections, hundreds a second, cause one log
// line a second, and do not hide the refusal of a peer.
func TestRefusalsFillNoLog(t *testing.T) {
	j := newJob(t, "j", time.Hour)
	n := j.nodes(2, []int{1})[0]
	begun := time.Now()
	const many = 300
	for i := range many {
		c := n.dialRaw()
		write([]byte("GET / HTTP/1.1\r\n\r\n"))(c)
		_, _ = io.Copy(io.Discard, c) // the node closes or resets the connection
		_ = c.Close()                 // it is not needed any more
		wait(t, "the refusal", func() bool { return n.Refused() == uint64(i+1) })
	}
	n.refuses("speaks protocol version 99", greet(j, 99, 0, 0, 1))
	most := 2 + int(time.Since(begun)/admission.WarningInterval)
	warned := 0
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, "level=WARN") {
			warned++
			if strings.Contains(line, "protocol version 99") {
				warned += many // that of a peer is always logged
			}
		}
	}
	if warned -= many; warned < 2 || warned > most {
		t.Errorf("%d lines about unauthenticated connections and a refused peer, want 2 to %d with the peer's:\n%s", warned, most, n.log)
	}
}
