package verbs

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// TestTypical checks that rounds during which another process had the processor do not
// count.
func TestTypical(t *testing.T) {
	for lost := range rounds/2 + 1 {
		now, round := time.Now(), 0
		got := typical(func() time.Time { return now }, func() {
			now = now.Add(time.Microsecond)
			if round++; round <= lost {
				now = now.Add(4 * time.Millisecond)
			}
		})
		if got != 1000 {
			t.Errorf("a microsecond takes %v ns, with %d rounds of %d cut off for 4 ms", got, lost, rounds)
		}
	}
}

// TestEndingsTypical checks the same for the cost of ending a registration.
func TestEndingsTypical(t *testing.T) {
	for lost := range rounds/2 + 1 {
		now, calls := time.Now(), 0
		k := newSending(t).from.regs
		k.timePins(func() time.Time {
			now = now.Add(time.Microsecond)
			if calls++; calls > len(pinSizes)*rounds*4-4*lost { // a round reads the clock four times
				now = now.Add(4 * time.Millisecond)
			}
			return now
		}, make([]byte, scratchSize))
		if k.endCost != 1000 {
			t.Errorf("a microsecond takes %v ns, with the last %d of %d rounds cut off for 4 ms", k.endCost, lost, rounds)
		}
	}
}

// TestCalibrated checks that the measured costs are plausible, on any machine.
func TestCalibrated(t *testing.T) {
	s := newSending(t)
	k := s.from.regs
	if err := k.calibrate(); err != nil {
		t.Fatal(err)
	}
	costs := k.chooser.Costs()
	for n := uint64(128); n <= 8<<10; n *= 2 {
		if least := costs.MinUses(reuse.PathSend, n); !(least > 0) { // NaN, too
			t.Errorf("%d bytes: n_min is %v", n, least)
		}
	}
	if !k.refines || !(k.endCost > 0) {
		t.Errorf("refines %v, ending a registration takes %v ns", k.refines, k.endCost)
	}
}

// TestRegistrationsObserved checks that the cost of registrations follows those observed.
func TestRegistrationsObserved(t *testing.T) {
	for _, mode := range []string{bootstrap.ReuseAuto, bootstrap.ReuseAlways} {
		s := newSending(t)
		s.from.cfg.Reuse = mode
		const second = 1e9
		costs := s.from.regs.chooser.Costs()
		costs.Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 1, NS: second}}, []reuse.Sample{{Bytes: 1, NS: second}}, 50)
		s.from.regs.refines = mode == bootstrap.ReuseAuto
		before := costs.MinUses(reuse.PathSend, 4096)
		for i := range uint64(256) {
			s.from.Gathers(0, link.Ref{Region: arenaRegion, Off: i / 4 * 8192, Len: 4096})
		}
		s.send(t, 1<<20, 4096)
		after := costs.MinUses(reuse.PathSend, 4096)
		if mode == bootstrap.ReuseAuto && after > before/2 || mode == bootstrap.ReuseAlways && after != before {
			t.Errorf("%s: n_min was %v, is %v after %d registrations", mode, before, after, s.from.Buffers(0).Registered)
		}
	}
}
