package channel

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestTickLooksAtPeersWhoseTimeHasCome checks that Tick visits none of a thousand peers that
// are not due, and that a silent peer still gets its heartbeat and is given up in time.
func TestTickLooksAtPeersWhoseTimeHasCome(t *testing.T) {
	const pods = 1000
	r, u := connected(t, pods)
	g := &gate{open: 1 << 30}
	r.Flush(1, g)
	if next := r.Tick(1000, 0); next != 1+int64(r.cfg.Heartbeat) {
		t.Errorf("the next time is %d, want the first heartbeat", next)
	}
	if n := r.timers.Len(); n > 2*pods {
		t.Errorf("%d timers for %d peers, want at most two each", n, pods-1)
	}
	g.offered = 0
	now := 1 + int64(r.cfg.Heartbeat)
	r.Tick(now, 0)
	r.Flush(now, g)
	if g.offered != pods-1 {
		t.Errorf("%d heartbeats, want %d", g.offered, pods-1)
	}
	p := r.Peer(5)
	for i := range r.peers {
		r.peers[i].times.down = 0
	}
	p.times.heard = 1
	for ; now <= 1+int64(r.cfg.DeadAfter); now += int64(r.cfg.Heartbeat) {
		for i := range r.peers {
			if r.peers[i].id != p.id {
				r.peers[i].times.heard = now
			}
		}
		r.Tick(now, 0)
	}
	if p.State() != Dead || !slices.Equal(u.lost, []link.Peer{5}) {
		t.Errorf("a peer that was silent for %v is not dead", r.cfg.DeadAfter)
	}
	if n := testing.AllocsPerRun(10, func() { r.Tick(now, 0) }); n != 0 {
		t.Errorf("a tick allocates %v times", n)
	}
}

// TestOwnTimerEnds checks that no timer of this sidecar's own stream remains when its outbox
// has shrunk.
func TestOwnTimerEnds(t *testing.T) {
	r, _ := connected(t, 1)
	p := r.Peer(0)
	r.LinkUp(1, 0, link.Caps{})
	const frames = 2 * outboxKeep
	for range frames {
		r.Emit(p, wire.Heartbeat)
	}
	r.Flush(2, &gate{open: frames})
	if p.times.timer == 0 {
		t.Fatal("no timer runs")
	}
	for seq := range uint64(frames) {
		if err := r.arrived(p, &wire.Header{Seq: seq + 1}); err != nil {
			t.Fatal(err)
		}
	}
	for s := range int64(3) {
		r.Tick((s+1)*1e9, 0)
	}
	if p.out.Large() || p.times.timer != 0 {
		t.Errorf("room for many frames is kept: %v, a timer runs: %v", p.out.Large(), p.times.timer != 0)
	}
}
