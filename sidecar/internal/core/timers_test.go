package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestTickLooksAtPeersWhoseTimeHasCome: a thousand peers, of which none is due,
// are not looked at; a silent one still gets its heartbeat and its end.
func TestTickLooksAtPeersWhoseTimeHasCome(t *testing.T) {
	const pods = 1000
	podOf := make([]int32, pods)
	for i := range podOf {
		podOf[i] = int32(i)
	}
	c, err := New(Config{PodOf: podOf, Pods: pods}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < pods; i++ {
		p := &c.peers[i]
		c.reach(p)
		c.LinkUp(1, p.id, link.Caps{})
		p.state, p.greet = peerReady, false
	}
	g := &gate{open: 1 << 30}
	c.Flush(1, g)
	if next := c.Tick(1000); next != 1+int64(c.cfg.Heartbeat) {
		t.Errorf("the next time is %d, want the first heartbeat", next)
	}
	if n := c.timers.Len(); n > 2*pods {
		t.Errorf("%d timers for %d peers, want at most two each", n, pods-1)
	}
	g.offered = 0
	now := 1 + int64(c.cfg.Heartbeat)
	c.Tick(now)
	c.Flush(now, g)
	if g.offered != pods-1 {
		t.Errorf("%d heartbeats, want %d", g.offered, pods-1)
	}
	p := &c.peers[5]
	for i := range c.peers {
		c.peers[i].downAt = 0
	}
	p.heardAt = 1
	for ; now <= 1+int64(c.cfg.DeadAfter); now += int64(c.cfg.Heartbeat) {
		for i := range c.peers {
			if c.peers[i].id != p.id {
				c.peers[i].heardAt = now
			}
		}
		c.Tick(now)
	}
	if p.state != peerDead || c.Failed() == nil {
		t.Errorf("a peer that was silent for %v is not dead", c.cfg.DeadAfter)
	}
	if n := testing.AllocsPerRun(10, func() { c.Tick(now) }); n != 0 {
		t.Errorf("a tick allocates %v times", n)
	}
}
