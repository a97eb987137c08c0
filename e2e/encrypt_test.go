package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// tap is a network between two sidecars that records all bytes.
type tap struct {
	net.Listener
	to   string
	mu   sync.Mutex
	seen bytes.Buffer
	all  sync.WaitGroup
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

func (p *tap) serve() {
	for {
		a, err := p.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = a.Close() // as if no sidecar listened
			continue
		}
		for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
			p.all.Go(func() {
				_, _ = io.Copy(io.MultiWriter(way[0], p), way[1]) // until one end closes
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}

// TestNothingIsReadOnTheWire checks that the ring's numbers occur in the bytes between the
// pods if data is not encrypted, and do not if it is.
func TestNothingIsReadOnTheWire(t *testing.T) {
	for _, encrypt := range []string{bootstrap.EncryptNone, bootstrap.EncryptTLS} {
		t.Run(encrypt, func(t *testing.T) {
			h := prepareHand(t, 2, 2)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := &tap{Listener: l, to: h.listen[1]}
			p.all.Go(p.serve)
			t.Cleanup(func() {
				_ = l.Close() // the sidecars have ended
				p.all.Wait()
			})
			h.doc.Pods[1].Address, h.doc.Tuning.Encrypt = l.Addr().String(), encrypt
			h.doc.Tuning.Transport = bootstrap.TransportTCP // else nothing is on the wire
			h.start()
			h.launch(ring("-rounds", "50", "-bytes", "100000")...)
			if !strings.Contains(h.out.String(), "every byte right") {
				t.Errorf("no right result\n%s", h.out)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := p.seen.Len(); n < 50*100_000 {
				t.Errorf("only %d bytes went through the tap", n)
			}
			if found := bytes.Contains(p.seen.Bytes(), words(1, 7)); found != (encrypt == bootstrap.EncryptNone) {
				t.Errorf("a block of rank 1 is readable on the wire: %v", found)
			}
		})
	}
}

// words returns the first 64 bytes of the block that a rank of the ring sends in a round
// (clientlib/examples/ring).
func words(rank, round uint64) []byte {
	var b []byte
	for i := range uint64(8) {
		b = binary.LittleEndian.AppendUint64(b, (rank<<48^round<<20^i)*0x9e3779b97f4a7c15)
	}
	return b
}

// TestEncryptedJob runs a verified benchmark over encrypted connections.
func TestEncryptedJob(t *testing.T) {
	code, out := startWith(t, []string{"--encrypt"}, 4, 4, bin+"/npb", "-class", "S", "is").wait()
	if code != 0 || !strings.Contains(out, "VERIFICATION SUCCESSFUL") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
