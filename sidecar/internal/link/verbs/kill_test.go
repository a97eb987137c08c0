package verbs

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
	"golang.org/x/sys/unix"
)

// troupe is two sidecars with a rank each, whose devices are made of memory.
type troupe struct {
	t     *testing.T
	now   int64
	actor [2]*actor
}

// actor is one of them, with its rank's rings.
type actor struct {
	*troupe
	self     link.Peer
	engine   *engine.Engine
	link     *Link
	nic      *fakeNIC
	session  *session.Session
	arena    []byte
	submit   *ring.Producer
	complete *ring.Consumer
	script   []shm.Descriptor // a descriptor without an operation: wait for all before
	open     int
	killed   bool
	freed    bool // its memory is unmapped
}

const (
	killArena   = 1 << 20
	killMessage = 150_000
	killWindow  = 9
)

func newTroupe(t *testing.T, protocol rendezvous.Protocol, channel eagerring.Kind) *troupe {
	t.Helper()
	x := &troupe{t: t, now: 1}
	f := newFabric()
	for i := range x.actor {
		a := &actor{troupe: x, self: link.Peer(i), arena: words(killArena)}
		x.actor[i] = a
		var err error
		if a.nic, err = f.open(fmt.Sprintf("fake%d", i)); err != nil {
			t.Fatal(err)
		}
		stream, err := tcp.New(nil, 2)
		if err != nil {
			t.Fatal(err)
		}
		quiet := slog.New(slog.DiscardHandler)
		receives := []string{bootstrap.ReceivesOwn, bootstrap.ReceivesShared}[(i+int(protocol))%2]
		a.nic.limit = 1 + (i+int(protocol))%2 // costs are given and not measured, so that each run has the same steps
		// Writes are placed in order, so that every protocol is itself.
		if a.link, err = newLink(Config{Peers: 2, Ranks: 1, Stream: stream, Log: quiet, InOrder: true, Receives: receives}, nil, a.nic); err != nil {
			t.Fatal(err)
		}
		a.nic.limit = 0
		(&sending{from: a.link}).costs()
		loop := local.New(a.self, nil)
		a.engine, err = engine.New(engine.Config{
			Core:  core.Config{Self: a.self, PodOf: []int32{0, 1}, Pods: 2, Rendezvous: protocol, Channel: channel, DeadAfter: time.Second, StartWithin: time.Second, Seed: 5},
			Local: loop, Remote: a.link, Dialer: a, Log: quiet,
		}, func() int64 { return x.now })
		if err != nil {
			t.Fatal(err)
		}
		loop.SetMemory(a.engine)
		a.link.SetMemory(a.engine)
		stream.SetMemory(a.engine)
		a.attach()
	}
	return x
}

func words(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	return mem
}

func (a *actor) attach() {
	g := segment.Geometry{SubmitEntries: 64, CompleteEntries: 64, SlabBytes: 64 << 10}
	control := words(g.Bytes())
	c, err := segment.Format(control, g, uint32(a.self))
	if err != nil {
		a.t.Fatal(err)
	}
	if a.session, err = session.New(c, a.arena, uint32(a.self)); err != nil {
		a.t.Fatal(err)
	}
	a.session.SetFree(func() error {
		a.freed = true
		return errors.Join(unix.Munmap(a.arena), unix.Munmap(control)) // an access after this ends the test
	})
	mem, n := c.SubmitRing()
	if a.submit, err = ring.NewProducer(mem, n); err != nil {
		a.t.Fatal(err)
	}
	mem, n = c.CompleteRing()
	if a.complete, err = ring.NewConsumer(mem, n); err != nil {
		a.t.Fatal(err)
	}
	if err := a.engine.Attach(a.session); err != nil {
		a.t.Fatal(err)
	}
}

// Connect implements engine.Dialer: the connection exists at once.
func (a *actor) Connect(peer link.Peer) {
	b := a.actor[peer]
	x, y := ends(a.t, a.link, b.link)
	fds := sockets(a.t)
	drop := func() { a.t.Error("a connection is not accepted") }
	a.engine.Joined(peer, func() error { return a.link.Join(peer, fds[0], x) }, drop)
	b.engine.Joined(a.self, func() error { return b.link.Join(a.self, fds[1], y) }, drop)
}

// Cancel implements engine.Dialer.
func (a *actor) Cancel(link.Peer) {}

// rehearse writes the script of a rank: windows, small and large messages in both
// directions, receives posted before and after, puts and gets. It waits only where a step
// needs an earlier one, so that many operations are in flight at any time.
func (a *actor) rehearse() {
	peer := uint32(1 - a.self)
	req, at := uint32(0), uint64(0)
	pause := func() { a.script = append(a.script, shm.Descriptor{}) }
	add := func(d shm.Descriptor, n, aux uint64) {
		d.Req, req = req, req+1
		if n > 0 {
			d.Class = shm.ClassArena
			d.SetBody(at, n, aux, 0)
			at += (n + 63) &^ 63
		}
		a.script = append(a.script, d)
	}
	message := func(op shm.Op, tag, n uint64) { add(shm.Descriptor{Op: op, Peer: peer, Tag: tag}, n, 0) }
	add(shm.Descriptor{Op: shm.OpWin, Context: killWindow}, 64<<10, 0)
	message(shm.OpRecv, 1, killMessage)
	message(shm.OpRecv, 2, 100)
	message(shm.OpSend, 2, 100)
	message(shm.OpSend, 1, killMessage)
	for i := range 3 {
		if i == 1 {
			pause() // the window is announced now
		}
		add(shm.Descriptor{Op: shm.OpPut, Peer: peer, Context: killWindow}, 20_000, 1000)
		add(shm.Descriptor{Op: shm.OpFlush, Peer: peer, Context: killWindow}, 0, 0)
		add(shm.Descriptor{Op: shm.OpGet, Peer: peer, Context: killWindow}, 30_000, 30_000)
	}
	for range 2 { // the receiver first, if the protocol has that; the first offer comes too late
		if a.self == 0 {
			message(shm.OpRecv, 3, killMessage)
			message(shm.OpSend, 4, 100)
		} else {
			message(shm.OpRecv, 4, 100)
			pause()
			message(shm.OpSend, 3, killMessage)
		}
		pause()
	}
	add(shm.Descriptor{Op: shm.OpWinFree, Context: killWindow}, 0, 0)
}

// step runs a turn of each sidecar and rank.
func (x *troupe) step() {
	for _, a := range x.actor {
		x.now += 150_000
		a.turn()
	}
}

// turn runs a turn of a sidecar, and the steps of its rank after it.
func (a *actor) turn() {
	a.engine.Turn()
	if a.killed {
		return
	}
	var d shm.Descriptor
	for a.complete.Pop(&d) {
		if d.Op == shm.OpDone {
			a.open--
		}
	}
	a.complete.Release()
	for range 2 { // a few at a time
		if len(a.script) > 0 && a.script[0].Op == shm.OpNone && a.open == 0 {
			a.script = a.script[1:]
		}
		if len(a.script) == 0 || a.script[0].Op == shm.OpNone {
			break
		}
		if ok, err := a.submit.Push(&a.script[0]); err != nil || !ok {
			a.t.Fatal(ok, err)
		}
		a.script, a.open = a.script[1:], a.open+1
	}
}

func (x *troupe) over() bool {
	for _, a := range x.actor {
		if len(a.script) > 0 || a.open > 0 {
			return false
		}
	}
	return true
}

func (a *actor) kill() {
	if !a.killed {
		a.killed = true
		a.engine.SessionGone(a.session)
	}
}

// remains lists the resources that a sidecar still has after its ranks have ended.
func (a *actor) remains() string {
	var left []string
	say := func(n int, what string) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	s := a.engine.Counters()
	say(s.Sends+s.Receives+s.Accesses+s.Parked+int(s.UnexpectedBytes), "requests and bytes")
	say(len(a.link.exported)-s.Rings, "registrations for peers")
	say(len(a.link.regs.regions), "registrations of its rank's memory")
	say(sendSlots-len(a.link.stage.free), "slots")
	if a.nic.shared != nil {
		say(a.nic.shared.slots-len(a.nic.shared.receives)-len(a.link.sharing.receives.free), "shared receives that are not posted")
	}
	say(len(a.nic.pairs)-len(a.link.list), "queue pairs that are not those of its connections")
	receives := 1 // the shared receives
	if a.nic.shared == nil {
		receives = len(a.link.list)
	}
	say(len(a.nic.regions)-1-receives-s.Rings, "registrations other than messages, receives and rings")
	if !a.freed {
		left = append(left, fmt.Sprintf("the memory of its rank, and %+v", a.engine.Remains()))
	}
	return strings.Join(left, ", ")
}

// end ends both ranks, as launchers do when one has, and checks the resources.
func (x *troupe) end(what string) {
	x.t.Helper()
	for _, a := range x.actor {
		a.kill()
	}
	for range 200 { // four times as long as a peer is waited for
		x.now += 20_000_000
		x.step()
	}
	for _, a := range x.actor {
		if left := a.remains(); left != "" {
			x.t.Errorf("%s: pod %d has left %s", what, a.self, left)
		}
		if err := a.engine.Close(); err != nil { // the device reports what remains
			x.t.Errorf("%s: pod %d: %v", what, a.self, err)
		}
	}
}

// play makes a troupe and executes so many turns of its job, one sidecar after the other,
// or all of them, and returns their number.
func play(t *testing.T, p rendezvous.Protocol, channel eagerring.Kind, until int) (x *troupe, turns int) {
	t.Helper()
	x = newTroupe(t, p, channel)
	for _, a := range x.actor {
		a.rehearse()
	}
	for ; turns != until && !x.over(); turns++ {
		if turns > 20_000 {
			t.Fatalf("the job does not end: %+v", x.actor[0].engine.Counters())
		}
		x.now += 150_000
		x.actor[turns%2].turn()
	}
	return x, turns
}

var killedEvery = flag.Int("verbs.killed", 3, "TestKilled kills a rank after each so many turns, of each protocol after others")

// TestKilled kills each rank, which sends and receives, after each turn of either sidecar
// of a job with every protocol, and checks that the sidecars keep nothing of it: no
// request, registration, byte, slot or queue pair. The time grows with the square of the
// number of turns: `make kills` tests each turn, other runs every third.
func TestKilled(t *testing.T) {
	for p := rendezvous.Auto; p <= rendezvous.Stream; p++ {
		channel := eagerring.Kind(int(p) % 4)
		t.Run(p.String(), func(t *testing.T) {
			whole, all := play(t, p, channel, -1)
			for _, a := range whole.actor {
				if err := a.engine.Failure(); err != nil {
					t.Fatal(err)
				}
			}
			checkUsed(t, p, whole)
			whole.end("the whole job")
			for k := int(p) % *killedEvery; k < 2*all; k += *killedEvery {
				rank, turns := k%2, k/2
				x, _ := play(t, p, channel, turns)
				what := fmt.Sprintf("rank %d killed after turn %d of %d", rank, turns, all)
				x.actor[rank].kill()
				for n := 0; x.actor[0].engine.Failure() == nil || x.actor[1].engine.Failure() == nil; n++ {
					if x.step(); n > 1000 { // submitted requests are handled first
						t.Fatal(what, "and not every sidecar knows")
					}
				}
				x.end(what)
			}
			t.Logf("%d turns, a rank killed after every %d. of either", all, *killedEvery)
		})
	}
}

// checkUsed fails if the job has not used the paths that it is to test.
func checkUsed(t *testing.T, p rendezvous.Protocol, x *troupe) {
	t.Helper()
	s, other := x.actor[0].engine.Counters(), x.actor[1].engine.Counters()
	if s.RemotePut.Messages == 0 || s.RemoteGet.Messages == 0 || s.RemoteErrors > 0 {
		t.Errorf("the windows were not reached remotely: %+v", s)
	}
	if s.RingFrames+other.RingFrames == 0 {
		t.Errorf("no frame used a ring: %+v", s)
	}
	if used := map[rendezvous.Protocol]uint64{
		rendezvous.Auto: s.Get.Messages + other.Get.Messages, rendezvous.GetCQE: s.Get.Messages + other.Get.Messages, rendezvous.Get: s.Get.Messages + other.Get.Messages,
		rendezvous.Put: s.Offered + other.Offered, rendezvous.PutNR: s.Offered + other.Offered, rendezvous.RPut: s.Put.Messages + other.Put.Messages,
		rendezvous.Stream: s.Stream.Messages + other.Stream.Messages,
	}[p]; used == 0 {
		t.Errorf("the protocol was not used: %+v", s)
	}
}
