package virtual

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// TestParts checks that a message larger than what is registered at once arrives whole by
// each protocol, and takes a little longer because of the answers between its parts: 256
// KiB at 1 GB/s and a latency of 1 us, which corresponds to 16 MiB at 12 GB/s and 5 us.
func TestParts(t *testing.T) {
	took := func(rdv rendezvous.Protocol, most uint64, notify bool) (end float64) {
		t.Helper()
		c := caps()
		c.Register, c.Read, c.Write, c.InOrder, c.Notify, c.RegisterMax = true, true, true, true, notify, most
		const n = 1 << 20
		run(t, Config{Model: plain(), PodOf: []int32{0, 1}, Caps: c, Core: core.Config{Rendezvous: rdv, FastPeers: -1}}, func(r *Rank) {
			if r.Number == 0 {
				for i := range n {
					r.Arena[i] = byte(i * 7)
				}
				r.Wait(r.Send(1, 2, 0, 8)) // makes the connection
				r.Wait(r.Recv(1, 2, n, 8))
				r.Wait(r.Send(1, 3, 0, n))
				return
			}
			r.Wait(r.Recv(0, 2, n+64, 8))
			r.Wait(r.Send(0, 2, n+64, 8))
			begin := r.Now()
			r.Wait(r.Recv(0, 3, 64, n))
			end = r.Now() - begin
			for i := range n {
				if r.Arena[64+i] != byte(i*7) {
					t.Errorf("%v: byte %d is wrong", rdv, i)
					return
				}
			}
		})
		return end
	}
	for _, rdv := range []rendezvous.Protocol{rendezvous.Auto, rendezvous.GetCQE, rendezvous.Get, rendezvous.Put, rendezvous.PutNR, rendezvous.RPut, rendezvous.Stream} {
		for _, notify := range []bool{false, true} {
			whole, parts := took(rdv, 0, notify), took(rdv, 256<<10, notify)
			t.Logf("%v, notify %v: %.0f ns whole, %.0f ns in parts", rdv, notify, whole, parts)
			if parts > 1.03*whole {
				t.Errorf("%v, notify %v: %.0f ns in parts, %.0f ns whole", rdv, notify, parts, whole)
			}
		}
	}
}
