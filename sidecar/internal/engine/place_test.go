package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

const ms = int64(time.Millisecond)

// fakeAffinity stands for the kernel's.
type fakeAffinity struct {
	at     unix.CPUSet
	on     int
	calls  int
	refuse error
}

func (f *fakeAffinity) cpu() int { return f.on }

func (f *fakeAffinity) get(s *unix.CPUSet) error { *s = f.at; return nil }

func (f *fakeAffinity) set(s *unix.CPUSet) error {
	f.calls++
	if f.refuse != nil {
		return f.refuse
	}
	f.at = *s
	return nil
}

func cpus(list ...int) (s unix.CPUSet) {
	for _, cpu := range list {
		s.Set(cpu)
	}
	return s
}

func placerOn(list ...int) (*placer, *fakeAffinity) {
	f := &fakeAffinity{at: cpus(list...)}
	p := newPlacer(f)
	return &p, f
}

func computes(cpu int) shm.Place { return shm.Place(0).On(cpu).Computing(true) }
func waits(cpu int) shm.Place    { return shm.Place(0).On(cpu).Waiting(true) }

func at(t *testing.T, f *fakeAffinity, list ...int) {
	t.Helper()
	if f.at != cpus(list...) {
		t.Fatalf("on processors %v, want %v", f.at, list)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An engine keeps off the processor on which its rank computes, also while the
// rank waits for a moment, and goes where it likes when that is long past.
func TestPlacerKeepsOffComputingRank(t *testing.T) {
	p, f := placerOn(0, 1)
	now := int64(1000)
	do(t, p.place(now, false, false, []shm.Place{computes(0)}))
	at(t, f, 1)
	do(t, p.place(now+10*ms, true, false, []shm.Place{waits(0)}))
	at(t, f, 1)
	do(t, p.rest(now+50*ms))
	at(t, f, 1)
	do(t, p.rest(now+10*ms+stayFor))
	at(t, f, 0, 1)
	if f.calls != 2 {
		t.Errorf("%d changes, want 2", f.calls)
	}
}

// A rank that moved is followed, but not at once.
func TestPlacerFollowsAtABoundedRate(t *testing.T) {
	p, f := placerOn(0, 1)
	now := int64(1000)
	do(t, p.place(now, false, false, []shm.Place{computes(0)}))
	for at := now; at < now+moveAfter; at += ms / 4 { // a rank that lies
		do(t, p.place(at, false, false, []shm.Place{computes(int(at/ms) & 1)}))
	}
	at(t, f, 1)
	if f.calls != 1 {
		t.Errorf("%d changes within %v, want 1", f.calls, time.Duration(moveAfter))
	}
	do(t, p.place(now+moveAfter, false, false, []shm.Place{computes(1)}))
	at(t, f, 0)
}

// Where ranks only wait, the engine joins them if its own processor is
// that
// of a peer's rank, as far as it can know, and only then.
func TestPlacerJoinsWaitingRank(t *testing.T) {
	p, f := placerOn(0, 1, 2, 3)
	now := int64(1000)
	do(t, p.place(now, false, false, []shm.Place{waits(2), 0}))
	at(t, f, 0, 1, 2, 3)
	do(t, p.place(now, true, false, []shm.Place{waits(2), 0}))
	at(t, f, 0, 1, 2, 3)
	p.hear(now, 1)
	do(t, p.place(now, false, false, []shm.Place{waits(2), 0}))
	at(t, f, 0, 1, 2, 3)
	do(t, p.place(now, true, false, []shm.Place{waits(2), 0, waits(3)}))
	at(t, f, 2, 3)
	p.hear(now+stayFor, 1) // nothing new
	do(t, p.place(now+stayFor, true, false, []shm.Place{waits(2), 0, waits(3)}))
	at(t, f, 0, 1, 2, 3)
}

// With ranks of both kinds, those that compute decide.
func TestPlacerOfManyRanks(t *testing.T) {
	p, f := placerOn(0, 1, 2, 3)
	do(t, p.place(1000, true, false, []shm.Place{computes(0), waits(1), computes(3)}))
	at(t, f, 1, 2)
}

// What leaves no choice, or is not the sidecar's to use, changes nothing.
func TestPlacerWithoutChoice(t *testing.T) {
	for what, ranks := range map[string][]shm.Place{
		"nothing said":            {0, 0},
		"every processor":         {computes(0), computes(1)},
		"elsewhere":               {computes(7), computes(65534)},
		"outside the library":     {shm.Place(0).On(0)},
		"waits at all":            {waits(0), waits(1)},
		"waits at unknown":        {shm.Place(0).Waiting(true)},
		"computes at unknown":     {shm.Place(0).Computing(true)},
		"no application at all":   nil,
		"every bit that there is": {^shm.Place(0)},
	} {
		p, f := placerOn(0, 1)
		p.hear(1000, 1)
		do(t, p.place(1000, true, false, ranks))
		if f.calls != 0 {
			t.Errorf("%s: moved to %v", what, f.at)
		}
	}
}

// On one processor there is nothing to choose; nor does small traffic ask.
func TestPlacerOff(t *testing.T) {
	p, _ := placerOn(3)
	if p.news(1, 5) {
		t.Error("one processor, and it wants to choose")
	}
	p, _ = placerOn(0, 1)
	if p.news(1, 0) || !p.news(1, 5) || p.news(1+lookEvery, 5) || !p.news(1+lookEvery, 6) {
		t.Error("news without large messages, or none with them")
	}
	if p.news(2*lookEvery, 7) {
		t.Error("it looks too often")
	}
}

// A refusal is told once; then the kernel decides, as it would have.
func TestPlacerRefused(t *testing.T) {
	p, f := placerOn(0, 1)
	f.refuse = unix.EPERM
	if err := p.place(1000, false, false, []shm.Place{computes(0)}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "processors") {
		t.Fatalf("got %v, want the refusal", err)
	}
	if p.news(1000+stayFor, 9) || p.rest(1000+stayFor) != nil || f.calls != 1 {
		t.Errorf("it tried again: %d calls", f.calls)
	}
}

// The processors that a thread may use can change (a kubelet's CPU manager
// does it): nothing outside them is asked for.
func TestPlacerOfChangedCPUs(t *testing.T) {
	p, f := placerOn(0, 1)
	f.at = cpus(2, 3)
	ranks := []shm.Place{computes(2)}
	do(t, p.place(1000, false, false, []shm.Place{computes(0)}))
	at(t, f, 2, 3)
	do(t, p.place(1000+moveAfter, false, false, ranks))
	at(t, f, 3)
	p.release()
	at(t, f, 2, 3)
}

// Looking costs no allocation.
func TestPlacerAllocatesNothing(t *testing.T) {
	p, _ := placerOn(0, 1)
	ranks, now := []shm.Place{computes(0), waits(1)}, int64(0)
	if n := testing.AllocsPerRun(100, func() { now += ms; _ = p.place(now, true, false, ranks) }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}

// Only large messages are news, at both ends; what ranks say reaches the thread.
func TestEngineSettles(t *testing.T) {
	e, apps := pod(t, 2)
	closing(t, e)
	f := &fakeAffinity{at: cpus(0, 1)}
	e.placer = newPlacer(f)
	apps[0].control.SetPlace(computes(1))
	batch(t, e, apps, 64)
	e.settle(false, false)
	at(t, f, 0, 1)
	large(t, e, apps, 512<<10)
	e.settle(false, false)
	at(t, f, 0)
	if e.core.Beside() != 0 {
		t.Error("ranks compute before anybody said so")
	}
	large(t, e, apps, 512<<10) // this pod is its own peer
	if e.core.Beside() == 0 {
		t.Error("the peer is not told that ranks compute")
	}
	e.now += lookEvery
	e.settle(false, false) // takes the news
	e.now += stayFor
	e.settle(false, false)
	at(t, f, 0, 1)
}

// large sends n bytes of arena memory from rank 0 to rank 1.
func large(t *testing.T, e *Engine, apps []*app, n uint64) {
	t.Helper()
	recv := shm.Descriptor{Op: shm.OpRecv, Class: shm.ClassArena, Tag: 7}
	send := shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena, Peer: 1, Tag: 7}
	recv.SetBody(0, n, 0, 0)
	send.SetBody(0, n, 0, 0)
	for i, d := range []*shm.Descriptor{&send, &recv} {
		if ok, err := apps[i].submit.Push(d); !ok || err != nil {
			t.Fatal("not submitted", err)
		}
	}
	for _, a := range apps {
		var d shm.Descriptor
		for !a.complete.Pop(&d) {
			e.Turn()
		}
		if d.Op != shm.OpDone || d.Status != shm.StatusOK {
			t.Fatalf("completion %+v", d)
		}
	}
}

// An engine that shares its processor with another one goes away from it after a
// while, and stays there as long as large messages move. Where it is not alone either
// it goes on looking, less and less often.
func TestPlacerPartsFromAnotherEngine(t *testing.T) {
	p, f := placerOn(0, 1, 2)
	now, moved := int64(1000), 0
	wait := func(shared bool, atMost int64) {
		t.Helper()
		for end, before := now+atMost, f.calls; f.calls == before && now < end; now += ms / 10 {
			do(t, p.place(now, false, shared, []shm.Place{waits(0)}))
		}
	}
	wait(true, partMin/4)
	at(t, f, 0, 1, 2) // the other one may go
	wait(true, partMin)
	at(t, f, 1, 2)
	f.on = 1
	wait(false, 3*stayFor)
	at(t, f, 1, 2)
	do(t, p.rest(now+2*stayFor))
	at(t, f, 0, 1, 2)
	for end := now + 10*partMax; now < end; moved++ {
		wait(true, 2*partMax)
		f.on = 3 - f.on
	}
	if moved > 40 {
		t.Errorf("%d moves in 10 s", moved)
	}
	now += moveAfter
	if c := computes(0); p.place(now, false, true, []shm.Place{c}) != nil || f.at.IsSet(0) || p.apart {
		t.Error("a rank that computes comes first")
	}
}
