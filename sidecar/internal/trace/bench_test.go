package trace

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// BenchmarkMessage measures the cost of recording a message at its two sidecars: a send and
// a receive, each submitted and completed, and a frame recorded at both ends.
func BenchmarkMessage(b *testing.B) {
	for name, r := range map[string]*Recorder{"off": nil, "on": NewRecorder(1 << 17)} {
		b.Run(name, func(b *testing.B) {
			x := NewTimes(0, 0, r)
			recv, send, end, end2 := call(shm.OpRecv, 0, 1), call(shm.OpSend, 1, 1), done(0, 1, 8), done(1, 1, 8)
			h := &wire.Header{Type: wire.Eager, Seq: 1}
			b.ReportAllocs()
			for i := range int64(b.N) {
				x.Submit(i, recv)
				x.Submit(i, send)
				if r != nil {
					r.Sent(i, 1, false, h)
					r.Came(i, 1, false, h)
				}
				x.Complete(i, end2)
				x.Complete(i, end)
			}
		})
	}
}
