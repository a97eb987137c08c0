package tcp_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// FuzzStream feeds arbitrary bytes in arbitrary pieces. The connection must end with
// ErrBroken or ErrProtocol, once, and frames must be whole or absent.
func FuzzStream(f *testing.F) {
	frame := func(n uint32) []byte {
		var b [wire.HeaderBytes]byte
		h := wire.Header{Type: wire.Data, Seq: 1, Length: n}
		h.Encode(&b)
		return append(b[:], make([]byte, int(n)+wire.Padding(n))...)
	}
	f.Add(frame(0), uint16(64))
	f.Add(append(frame(5), frame(70)...), uint16(3))
	f.Add(append(frame(20_000), frame(8)...), uint16(4097))
	f.Add(frame(70)[:100], uint16(1))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(5))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1), uint16(2))
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		m := linktest.NewMemory()
		l := newLink(t, m)
		defer l.Close()
		x, y := socketPair(t)
		attach(t, l, y)
		sink := linktest.NewSink(m)
		for len(raw) > 0 {
			n := min(len(raw), int(cut)+1)
			if _, err := unix.SendmsgN(x, raw[:n], nil, nil, unix.MSG_NOSIGNAL); err != nil {
				break // the link has closed the connection
			}
			raw = raw[n:]
			l.Poll(sink)
		}
		if err := unix.Close(x); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			l.Poll(sink)
		}
		err := sink.DownError()
		if !errors.Is(err, link.ErrBroken) && !errors.Is(err, link.ErrProtocol) {
			t.Fatalf("the connection ended with %v; %v", err, sink)
		}
	})
}
