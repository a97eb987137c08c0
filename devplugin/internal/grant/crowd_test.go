package grant

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/grant"
)

// pods is an Identifier that assigns all callers to the pod that was set last. Callers of pod
// "flood" are never identified.
type pods struct{ now atomic.Value }

func (p *pods) Origin(int) string { return p.now.Load().(string) }

func (p *pods) Identify(ctx context.Context, pid int) (*Caller, error) {
	if p.Origin(pid) == "flood" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &Caller{PID: pid, Namespace: "ns", Pod: "good", PodUID: "good", Container: "outrigger", Devices: 1}, nil
}

// TestOnePodKeepsNoOtherOut: while the container runtime is slow to identify callers, a pod
// that connects without end has its share of connections and identifications, and another pod
// gets its grant.
func TestOnePodKeepsNoOtherOut(t *testing.T) {
	who := new(pods)
	who.now.Store("flood")
	r := newRigFor(t, who)
	var list []net.Conn
	for range connectionsMax + 100 {
		c, err := net.Dial("unixpacket", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the connection is not used
		list = append(list, c)
	}
	last := list[len(list)-1]
	if err := last.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := last.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("the last connection of a flood: %d bytes, %v", n, err)
	}
	if n := r.agent.Connections(); n > originMax {
		t.Errorf("one pod has %d connections, want %d at most", n, originMax)
	}
	// The first connections are being identified, and further ones of the pod wait for them.
	for len(r.agent.identifying) < originIdentifyMax {
		time.Sleep(time.Millisecond)
	}
	who.now.Store("good")
	c, err := grant.Dial(t.Context(), r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the grant has been received
	if _, err := c.Memlock(t.Context(), 1); err != nil {
		t.Errorf("another pod: %v", err)
	}
}

// TestOrigin: callers are grouped by their pods, as the kernel reports them. All callers
// outside of pods form one group.
func TestOrigin(t *testing.T) {
	d := &Directory{Proc: t.TempDir()}
	const a, b = "0a7c3b8e-1111-4222-8333-444455556666", "0a7c3b8e-1111-4222-8333-444455557777"
	const first, second = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	d.run(t, 1, a, first)
	d.run(t, 2, a, second)
	d.run(t, 3, b, first)
	if d.Origin(1) != a || d.Origin(2) != a || d.Origin(3) != b || d.Origin(4) != "" {
		t.Errorf("%q, %q, %q and %q", d.Origin(1), d.Origin(2), d.Origin(3), d.Origin(4))
	}
}
