package trace

import (
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestVain checks that probes in vain are kept, and count as no call if it is known that their rank
// does nothing else.
func TestVain(t *testing.T) {
	x := NewTimes(0, 3, nil)
	probe := func(now int64, peer uint32, tag uint64, status shm.Status) {
		d := &shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: peer, Tag: tag}
		x.Submit(now, d)
		x.Complete(now+1, &shm.Descriptor{Op: shm.OpDone, Status: status})
	}
	quiet := func(when string, now, known, unknown int64) {
		t.Helper()
		if a, b := x.Quiet(now, true, 70), x.Quiet(now, false, 0); a != known || b != unknown {
			t.Errorf("%s: quiet for %d if it is known that it does nothing else, and %d otherwise, want %d and %d", when, a, b, known, unknown)
		}
	}
	kept := func(when string, now int64, want string) {
		t.Helper()
		p, more := x.VainProbes(now, 50)
		got := ""
		for _, p := range p {
			got += fmt.Sprintf("%d/%d since %d, ", p.Peer, p.Tag, p.Since)
		}
		if got += fmt.Sprint(more); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	x.Submit(10, call(shm.OpRecv, 7, 1))
	quiet("a receive", 100, 90, 90)
	probe(20, 1, 5, shm.StatusNoMessage)
	probe(22, 2, 5, shm.StatusNoMessage)
	probe(24, 1, 5, shm.StatusNoMessage)
	kept("two probes by turns", 30, "1/5 since 20, 2/5 since 22, false")
	quiet("two probes by turns", 60, 50, 35)
	quiet("the application acts", 100, 70, 75)
	kept("it probes no longer", 100, "false")
	for i := range uint64(vainKept) {
		probe(100, 1, 10+i, shm.StatusNoMessage)
	}
	kept("many probes", 110, "1/5 since 20, 2/5 since 22, 1/10 since 100, 1/11 since 100, true")
	if n := x.Vain(); n != 3+vainKept {
		t.Errorf("%d probes in vain, want %d", n, 3+vainKept)
	}
	probe(120, 1, 5, shm.StatusOK)
	kept("a probe finds a message", 130, "false")
	quiet("a probe finds a message", 130, 9, 9)
	probe(140, 1, 6, shm.StatusNoMessage)
	x.Complete(150, done(7, 1, 8))
	quiet("a receive ends", 160, 10, 10)
	probe(170, 1, 7, shm.StatusNoMessage)
	kept("a probe after it", 171, "1/7 since 170, false")
}

// TestAccesses checks that messages of accesses count as calls only if it is not known that their rank
// repeats accesses, and that the target of the last request is known.
func TestAccesses(t *testing.T) {
	const requests, answers = shm.ProviderContext + 2, shm.ProviderContext + 3
	x := NewTimes(0, 3, nil)
	message := func(now int64, op shm.Op, req, peer, context uint32) {
		d := call(op, req, peer)
		d.Context = context
		x.Submit(now, d)
	}
	check := func(when string, now, known, unknown int64, target uint32, does bool) {
		t.Helper()
		if a, b := x.Quiet(now, true, 70), x.Quiet(now, false, 0); a != known || b != unknown {
			t.Errorf("%s: quiet for %d if it is known that it repeats them, and %d otherwise, want %d and %d", when, a, b, known, unknown)
		}
		if target2, does2 := x.Accesses(now, 50); does2 != does || does && target2 != target {
			t.Errorf("%s: accesses %d %v, want %d %v", when, target2, does2, target, does)
		}
	}
	x.Submit(10, call(shm.OpRecv, 7, 1))
	message(30, shm.OpRecv, 0, shm.AnySource, requests)
	x.Complete(32, done(0, 2, 40))
	message(33, shm.OpSend, 0, 2, answers)
	check("a target", 40, 30, 7, 0, false)
	x.Complete(34, done(0, 2, 0))
	message(50, shm.OpRecv, 1, 5, answers)
	message(51, shm.OpSend, 2, 5, requests)
	x.Complete(60, done(1, 5, 8))
	check("an origin", 70, 60, 10, 5, true)
	check("long after it", 120, 70, 60, 5, false)
	if n := x.Vain(); n != 3 {
		t.Errorf("%d have ended, want 3", n)
	}
	x.Complete(130, done(7, 1, 8))
	check("its receive ends", 140, 10, 10, 0, false)
	if n := x.Summary(150).Served; n != 1 {
		t.Errorf("the rank has carried out %d accesses, want 1", n)
	}
}

// TestVainCostsNoAllocation checks a probe in vain, of which a rank may call a million in a second.
func TestVainCostsNoAllocation(t *testing.T) {
	x := NewTimes(0, 3, nil)
	d := &shm.Descriptor{Op: shm.OpProbe, Flags: shm.FlagNow, Peer: 1}
	end := &shm.Descriptor{Op: shm.OpDone, Status: shm.StatusNoMessage}
	x.Submit(1, d)
	x.Complete(2, end)
	if n := testing.AllocsPerRun(100, func() { x.Submit(3, d); x.Complete(4, end) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
