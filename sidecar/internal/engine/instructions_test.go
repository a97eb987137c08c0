//go:build linux && amd64 && !race

package engine

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/instructions"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// turnTime is the time of a turn by the clock of a crowd. Looks at silent ranks are then as
// far apart in turns as looks at silent connections are under single steps: 8 turns.
const turnTime = int64(silence.LookInterval) / 8

// crowd is an engine of pod 0 with ranks and peers that are idle, which exchanges messages
// between its ranks 0 and 1, or with the rank of another engine.
type crowd struct {
	t    *testing.T
	e    *Engine
	l    *tcp.Link
	apps []*app

	there *Engine // pod 1; nil: messages stay in pod 0
	away  *app    // its rank
}

// newCrowd makes a crowd with that many idle ranks and peers. The peers are connected, and have
// sent their greeting.
func newCrowd(t *testing.T, tcp bool, ranks, peers int) *crowd {
	t.Helper()
	x, active, pods := &crowd{t: t}, 2, 1
	if tcp {
		active, pods = 1, 2
	}
	cfg := core.Config{PodOf: make([]int32, active+ranks), Pods: pods + peers}
	for pod := 1; pod < cfg.Pods; pod++ {
		cfg.PodOf = append(cfg.PodOf, int32(pod))
	}
	x.e, x.l, x.apps = x.side(cfg, active+ranks)
	if tcp {
		cfg.Self = 1
		x.there, _, _ = x.side(cfg, 0)
		x.away = attach(t, x.there, uint32(len(x.apps)))
		here, there := x.sockets()
		x.e.Connected(1, here)
		x.there.Connected(0, there)
	}
	for peer := pods; peer < cfg.Pods; peer++ {
		here, there := x.sockets()
		t.Cleanup(func() { _ = unix.Close(there) })
		x.e.Connected(link.Peer(peer), here)
		var greeting [wire.HeaderBytes]byte
		ackOf(0).Encode(&greeting)
		if _, err := unix.Write(there, greeting[:]); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// side makes an engine of the crowd with the first ranks.
func (x *crowd) side(cfg core.Config, ranks int) (*Engine, *tcp.Link, []*app) {
	x.t.Helper()
	l, err := tcp.New(nil, cfg.Pods)
	if err != nil {
		x.t.Fatal(err)
	}
	now := int64(1)
	e, apps := podWith(x.t, ranks, Config{Core: cfg, Remote: l}, func() int64 { now += turnTime; return now })
	closing(x.t, e)
	l.SetMemory(e)
	return e, l, apps
}

func (x *crowd) sockets() (here, there int) {
	x.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	return fds[0], fds[1]
}

// message sends 8 bytes from one application to another and waits for them, by turns of the
// engine of each.
func (x *crowd) message(from, to *app, source, target uint32, turns ...func()) {
	x.t.Helper()
	to.receive(x.t, source, 1)
	from.send(x.t, target)
	var d shm.Descriptor
	for n := 0; !to.complete.Pop(&d); n++ {
		if n > 1000 {
			x.t.Fatal("the message does not arrive")
		}
		for _, turn := range turns {
			turn()
		}
	}
	if d.Op != shm.OpDone || d.Status != shm.StatusOK {
		x.t.Fatalf("completion: op %d status %d", d.Op, d.Status)
	}
}

// exchange sends a message within the pod, or one to the other pod and one back. turn does a
// turn of the engine of pod 0.
func (x *crowd) exchange(turn func()) {
	x.t.Helper()
	if x.there == nil {
		x.message(x.apps[0], x.apps[1], 0, 1, turn)
		return
	}
	far := uint32(len(x.apps))
	elsewhere := func() { x.there.Turn() }
	x.message(x.apps[0], x.away, 0, far, turn, elsewhere)
	x.message(x.away, x.apps[0], far, 0, elsewhere, turn)
}

// TestIdleInstructions checks that 1,000 idle peers and 64 idle ranks leave the instructions of
// an 8-byte message within 3 % of those without. Counted are all turns of the engine that carry
// the message, after turns in which ranks and peers have become silent.
//
// By time, an engine does two things: a look at all silent ranks and one at all silent
// connections, every 20 us each. The engine's clock is one of the test. The link's is not, and
// a turn takes milliseconds under single steps: the link looks as often as it may at most,
// every eighth turn, which is more often than with turns of 1 us. Heartbeats and ticks are not
// due in the turns that are counted. The counts repeat after eight turns, so that the average
// of sixteen is that of any number.
func TestIdleInstructions(t *testing.T) {
	const turns, mostPercent = 16, 3
	average := func(t *testing.T, tcp bool, ranks, peers int) float64 {
		t.Helper()
		counts := instructions.Count(t, func(m *instructions.Meter) {
			x := newCrowd(t, tcp, ranks, peers)
			for range 20_000 {
				x.exchange(func() { x.e.Turn() })
			}
			if s, c := x.l.Stats(), x.e.Counters(); s.BytesIn < uint64(peers)*wire.HeaderBytes || c.Breaks > 0 {
				t.Errorf("%d bytes came from %d peers, and %d connections broke", s.BytesIn, peers, c.Breaks)
			}
			for n := 0; n < turns; {
				x.exchange(func() { m.Count(func() { x.e.Turn() }); n++ })
			}
		})
		if instructions.Stepped() {
			return 0
		}
		sum := 0
		for _, n := range counts {
			sum += n
		}
		if len(counts) != turns {
			t.Fatalf("an exchange takes more turns: %d are counted, want %d", len(counts), turns)
		}
		return float64(sum) / turns
	}
	for _, way := range []struct {
		name  string
		tcp   bool
		peers []int // with 7, none of them would be read by epoll if they were not silent
	}{{"pod", false, []int{1000}}, {"tcp", true, []int{7, 1000}}} {
		alone := 0.0
		t.Run(way.name+"/alone", func(t *testing.T) { alone = average(t, way.tcp, 0, 0) })
		for _, peers := range way.peers {
			const ranks = 64
			t.Run(fmt.Sprintf("%s/peers=%d", way.name, peers), func(t *testing.T) {
				with := average(t, way.tcp, ranks, peers)
				if alone == 0 || with == 0 {
					return // in the other process, or the first part did not run
				}
				more := 100 * (with/alone - 1)
				t.Logf("%.0f instructions a turn alone, %.0f with %d idle peers and %d idle ranks: %+.2f %%", alone, with, peers, ranks, more)
				if more > mostPercent {
					t.Errorf("%.2f %% more instructions, want at most %d %%", more, mostPercent)
				}
			})
		}
	}
}
