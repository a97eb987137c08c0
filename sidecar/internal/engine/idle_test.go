package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// becomeSilent runs turns until only that many sessions are visited. A turn takes 1 us by the
// clock of pod, so that this takes two sorts.
func becomeSilent(t testing.TB, e *Engine, visited int) {
	t.Helper()
	for n := 0; len(e.visits.list) != visited; n++ {
		if n > 3*silence.Turns {
			t.Fatalf("%d sessions are visited after %d turns, want %d", len(e.visits.list), n, visited)
		}
		e.Turn()
	}
}

// receive submits a receive of 8 bytes.
func (a *app) receive(tb testing.TB, from uint32, request uint32) {
	tb.Helper()
	a.push(tb, &shm.Descriptor{Op: shm.OpRecv, Req: request, Class: shm.ClassInline, InlineLen: 8, Peer: from, Tag: 7})
}

// send submits a send of 8 bytes.
func (a *app) send(tb testing.TB, to uint32) {
	tb.Helper()
	d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: to, Tag: 7}
	d.SetInline(make([]byte, 8))
	a.push(tb, &d)
}

// TestSilentRanks checks that turns visit no rank that is silent, that its first descriptor is
// taken at the next look, and that a completion for it is published at once.
func TestSilentRanks(t *testing.T) {
	const ranks = 64
	e, apps := pod(t, ranks)
	closing(t, e)
	apps[7].receive(t, 3, 1)
	e.Turn()
	becomeSilent(t, e, 0)
	for r, a := range apps {
		if !a.control.Sleeping() {
			t.Fatalf("rank %d is silent and does not know that it has to ring", r)
		}
	}
	for range 3 * silence.Turns {
		batch(t, e, apps, 1)
	}
	becomeSilent(t, e, 2)

	apps[3].send(t, 7)
	var d shm.Descriptor
	turns := 0
	for ; !apps[7].complete.Pop(&d); turns++ {
		if turns > 2*int(silence.LookInterval/time.Microsecond) { // a turn takes 1 us
			t.Fatal("the send of a silent rank is not taken, or its receiver learns of it late")
		}
		e.Turn()
	}
	if apps[3].control.Sleeping() || apps[7].control.Sleeping() || len(e.visits.list) != 4 {
		t.Errorf("%d sessions are visited after %d turns, want 4", len(e.visits.list), turns)
	}
	apps[3].receive(t, 7, 2) // a rank that is visited need not ring
	apps[7].send(t, 3)
	if e.Turn(); !apps[3].complete.Pop(&d) {
		t.Error("a rank that is visited waits for a look")
	}
}

// TestKeptRankStays checks that a session stays visited while its descriptors may not be taken,
// or its completions have no room: its application rings for neither.
func TestKeptRankStays(t *testing.T) {
	e, apps := pod(t, 2)
	closing(t, e)
	for i := 0; e.sessions[1] != nil && !e.sessions[1].Kept(); i++ {
		apps[1].receive(t, 0, uint32(i))
		apps[0].send(t, 1)
		e.Turn()
	}
	becomeSilent(t, e, 1)
	if a := e.visits.list[0]; a.Rank != 1 {
		t.Fatalf("rank %d is visited", a.Rank)
	}
	var d shm.Descriptor
	for apps[1].complete.Pop(&d) { // it rings for no room
	}
	apps[1].complete.Release()
	e.Turn()
	if !apps[1].complete.Pop(&d) {
		t.Error("kept completions are not published when there is room")
	}
}

// TestRanksThatCome checks that no descriptor is missed when ranks become silent and submit at
// the same time, with an engine that never sleeps and with one that always does.
func TestRanksThatCome(t *testing.T) {
	for name, w := range map[string]Wait{"polls": {Yield: -1}, "sleeps": {Yield: 1}} {
		t.Run(name, func(t *testing.T) {
			const ranks, rounds = 6, 150
			begin := time.Now()
			e, apps := podWith(t, ranks, Config{
				Core: core.Config{PodOf: make([]int32, ranks), Pods: 1}, Remote: local.New(0, nil), Wait: w,
			}, func() int64 { return int64(time.Since(begin)) + 1 })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); e.Run(ctx) }()
			defer func() { cancel(); <-ended; closing(t, e) }()

			var lost atomic.Int32
			done := make(chan struct{}, ranks)
			for r := range ranks {
				go func() {
					defer func() { done <- struct{}{} }()
					rng := rand.New(rand.NewPCG(uint64(r), 1))
					for i := range rounds {
						// About as long as it takes to become silent.
						time.Sleep(time.Duration(rng.Int64N(3 * int64(silence.Time))))
						apps[r].receive(t, uint32(r), uint32(i))
						apps[r].send(t, uint32(r))
						var d shm.Descriptor
						for begun := time.Now(); !apps[r].complete.Pop(&d); time.Sleep(time.Microsecond) {
							if time.Since(begun) > timeout {
								lost.Add(1)
								return
							}
						}
					}
				}()
			}
			for range ranks {
				<-done
			}
			if n := lost.Load(); n > 0 {
				t.Errorf("the descriptors of %d ranks were not taken", n)
			}
		})
	}
}

// connect connects a link with peers that say nothing.
func connect(tb testing.TB, l *tcp.Link, peers int) {
	tb.Helper()
	for i := range peers {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = unix.Close(fds[1]) })
		if err := l.Attach(link.Peer(i+1), fds[0]); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkIdle measures an 8-byte message within a pod, with connections and ranks that say
// nothing: the time of a turn without work, and of the turns of a message.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct{ peers, ranks int }{{0, 2}, {8, 2}, {1000, 2}, {0, 64}, {1000, 64}} {
		b.Run(fmt.Sprintf("peers=%d/ranks=%d", c.peers, c.ranks-2), func(b *testing.B) {
			l, err := tcp.New(nil, c.peers+1)
			if err != nil {
				b.Fatal(err)
			}
			podOfRank := make([]int32, c.ranks+c.peers)
			for i := range c.peers {
				podOfRank[c.ranks+i] = int32(i + 1)
			}
			begin := time.Now()
			e, apps := podWith(b, c.ranks, Config{
				Core: core.Config{PodOf: podOfRank, Pods: c.peers + 1}, Remote: l,
			}, func() int64 { return int64(time.Since(begin)) + 1 })
			closing(b, e)
			l.SetMemory(e)
			connect(b, l, c.peers)
			for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
				batch(b, e, apps, 64)
			}
			const turns = 100_000
			begun := time.Now()
			for range turns {
				e.Turn()
			}
			idle := time.Since(begun)
			batch(b, e, apps, 64)
			b.ResetTimer()
			var busy time.Duration
			for range b.N {
				busy += batch(b, e, apps, 1)
			}
			b.ReportMetric(float64(idle.Nanoseconds())/turns, "ns/idle-turn")
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "ns/message")
		})
	}
}
