package engine

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const ms = int64(time.Millisecond)

// self is the pod of the engine that is placed.
const self link.Peer = 5

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
	for cpu := 0; !s.IsSet(f.on); cpu++ {
		if s.IsSet(cpu) {
			f.on = cpu
		}
	}
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
	p := newPlacer(f, self)
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

// onSeat is a neighbour's word.
func onSeat(peer link.Peer, heard int64, cpu int, computes ...int) core.Neighbour {
	n := core.Neighbour{Peer: peer, Heard: heard, Seat: core.Seat{CPU: cpu}}
	for _, c := range computes {
		n.Computes.Add(c)
	}
	return n
}

// An engine keeps off the processor on which its rank computes, also while the
// rank waits for a moment, and goes where it likes when that is long past.
func TestPlacerKeepsOffComputingRank(t *testing.T) {
	p, f := placerOn(0, 1)
	now := int64(1000)
	do(t, p.place(now, []shm.Place{computes(0)}, nil))
	at(t, f, 1)
	if p.beside || p.seat.CPU != 1 {
		t.Errorf("it does not know that it has left the rank's processor: %+v", p.seat)
	}
	do(t, p.place(now+10*ms, []shm.Place{waits(0)}, nil))
	at(t, f, 1)
	do(t, p.rest(now+50*ms))
	at(t, f, 1)
	do(t, p.rest(now+10*ms+stayFor))
	at(t, f, 0, 1)
	if f.calls != 2 || p.moves != 1 || f.on != 1 {
		t.Errorf("%d changes, %d of processors, on %d, want 2, 1 and 1", f.calls, p.moves, f.on)
	}
}

// What was seen of ranks on one's own processor is forgotten when nobody looks any more.
func TestPlacerForgets(t *testing.T) {
	p, f := placerOn(0)
	now := int64(1000)
	if !p.news(now, 1) {
		t.Fatal("no look at the first messages")
	}
	do(t, p.place(now, []shm.Place{computes(0)}, nil))
	if !p.knows(now) {
		t.Error("where there is one processor, a rank that computes is not known of")
	}
	if p.knows(now + lookEvery + stayFor) {
		t.Errorf("a rank has computed here %v ago, and still counts", time.Duration(lookEvery+stayFor))
	}
	if f.calls != 0 || p.moves != 0 {
		t.Errorf("%d changes of the only processor", f.calls)
	}
}

// A rank that moved is followed, but not at once.
func TestPlacerFollowsAtABoundedRate(t *testing.T) {
	p, f := placerOn(0, 1)
	now := int64(1000)
	do(t, p.place(now, []shm.Place{computes(0)}, nil))
	for at := now; at < now+moveAfter; at += ms / 4 { // a rank that lies
		do(t, p.place(at, []shm.Place{computes(int(at/ms) & 1)}, nil))
	}
	at(t, f, 1)
	if f.calls != 1 {
		t.Errorf("%d changes within %v, want 1", f.calls, time.Duration(moveAfter))
	}
	do(t, p.place(now+moveAfter, []shm.Place{computes(1)}, nil))
	at(t, f, 0)
}

// An engine keeps off the processors on which ranks of its neighbours compute, as long
// as they say so, and tells its neighbours of its own.
func TestPlacerKeepsOffNeighboursRanks(t *testing.T) {
	p, f := placerOn(0, 1, 2, 3)
	f.on = 3
	now := int64(1000)
	far := []core.Neighbour{onSeat(9, now, -1, 3, 511), onSeat(2, now, -1)}
	do(t, p.place(now, []shm.Place{waits(2), computes(0)}, far))
	at(t, f, 1, 2)
	want := core.Seat{CPU: 1} // where it is now
	want.Computes.Add(0)
	if p.seat != want {
		t.Errorf("it tells %+v, want %+v", p.seat, want)
	}
	if p.beside || p.moves != 1 {
		t.Error("it does not know that it has left the processor of a neighbour's rank")
	}
	do(t, p.place(now+stayFor, []shm.Place{waits(2), waits(0)}, far)) // nothing new of them
	do(t, p.rest(now+stayFor+moveAfter))
	at(t, f, 0, 1, 2, 3)
	if p.beside || p.seat != (core.Seat{CPU: 1}) {
		t.Errorf("it tells %+v long after its rank has computed", p.seat)
	}
}

// Of two engines on one processor the one of the higher-numbered pod goes, and the
// other one then stays off where it is: they come apart and stay so, whoever the
// kernel moves meanwhile.
func TestPlacerParts(t *testing.T) {
	type engine struct {
		*placer
		f *fakeAffinity
	}
	var engines [2]engine
	for i := range engines {
		e := &engines[i]
		e.f = &fakeAffinity{at: cpus(0, 1)}
		p := newPlacer(e.f, link.Peer(i))
		e.placer = &p
	}
	seed := rand.New(rand.NewPCG(1, 2))
	together := 0
	for now := ms; now < 10_000*ms; now += ms {
		for i := range engines {
			e, other := &engines[i], &engines[1-i]
			if seed.IntN(100) == 0 { // the kernel's choice
				e.f.on = seed.IntN(2)
			}
			do(t, e.place(now, []shm.Place{waits(0), waits(1)}, []core.Neighbour{onSeat(link.Peer(1-i), now, other.f.on)}))
			if !e.f.at.IsSet(e.f.on) {
				e.f.on = 1 - e.f.on
			}
		}
		if engines[0].f.on == engines[1].f.on {
			together++
		}
	}
	if together > 200 {
		t.Errorf("on one processor in %d of 10,000 looks", together)
	}
	if n := engines[0].f.calls + engines[1].f.calls; n > 400 {
		t.Errorf("%d changes in 10 s", n)
	}
}

// Where there are more engines than processors, or no other processor without a rank
// that computes, engines share.
func TestPlacerShares(t *testing.T) {
	p, f := placerOn(0, 1)
	now := int64(1000)
	do(t, p.place(now, nil, []core.Neighbour{onSeat(1, now, 0), onSeat(2, now, 1)}))
	at(t, f, 0, 1)
	do(t, p.place(now, []shm.Place{computes(0)}, []core.Neighbour{onSeat(1, now, 1)}))
	at(t, f, 1)
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
		do(t, p.place(1000, ranks, []core.Neighbour{onSeat(1, 1000, -1), onSeat(9, 1000, 0), onSeat(2, 1000, 77)}))
		if f.calls != 0 {
			t.Errorf("%s: moved to %v", what, f.at)
		}
	}
}

// On one processor there is nothing to choose, but to tell; small traffic does not ask.
func TestPlacerOff(t *testing.T) {
	p, f := placerOn(3)
	f.on = 3
	do(t, p.place(1, []shm.Place{computes(3)}, nil))
	if f.calls != 0 || p.seat.CPU != 3 || !p.seat.Computes.Has(3) {
		t.Errorf("one processor: %d changes, and it tells %+v", f.calls, p.seat)
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
	if err := p.place(1000, []shm.Place{computes(0)}, nil); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "processors") {
		t.Fatalf("got %v, want the refusal", err)
	}
	if p.place(1000+stayFor, []shm.Place{computes(0)}, nil) != nil || p.rest(1000+stayFor) != nil || f.calls != 1 {
		t.Errorf("it tried again: %d calls", f.calls)
	}
}

// The processors that a thread may use can change (a kubelet's CPU manager
// does it): nothing outside them is asked for.
func TestPlacerOfChangedCPUs(t *testing.T) {
	p, f := placerOn(0, 1)
	f.at = cpus(2, 3)
	ranks := []shm.Place{computes(2)}
	do(t, p.place(1000, []shm.Place{computes(0)}, nil))
	at(t, f, 2, 3)
	do(t, p.place(1000+moveAfter, ranks, nil))
	at(t, f, 3)
	p.release()
	at(t, f, 2, 3)
}

// Looking costs no allocation.
func TestPlacerAllocatesNothing(t *testing.T) {
	p, _ := placerOn(0, 1)
	ranks, now := []shm.Place{computes(0), waits(1)}, int64(0)
	near := []core.Neighbour{onSeat(1, 0, 1, 0)}
	if n := testing.AllocsPerRun(100, func() { now += ms; near[0].Heard = now; _ = p.place(now, ranks, near) }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}

// Only large messages are news, at both ends; what ranks say reaches the thread.
func TestEngineSettles(t *testing.T) {
	e, apps := pod(t, 2)
	closing(t, e)
	f := &fakeAffinity{at: cpus(0, 1)}
	e.placer = newPlacer(f, 0)
	apps[0].control.SetPlace(computes(1))
	batch(t, e, apps, 64)
	e.settle()
	at(t, f, 0, 1)
	large(t, e, apps, 512<<10)
	e.settle()
	at(t, f, 0)
	large(t, e, apps, 512<<10)
	e.now += lookEvery
	e.settle() // takes the news
	e.now += stayFor
	e.settle()
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
		push(t, apps[i], d)
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
