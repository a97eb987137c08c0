package core

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// planning is a core of pod 0 with rank 0, in a job of three pods with a rank each.
type planning struct {
	t     *testing.T
	core  *Core
	ports *lone
}

func newPlanning(t *testing.T, schedules uint64) *planning {
	t.Helper()
	p := &planning{t: t, ports: &lone{regions: map[link.Region][]byte{}}}
	var err error
	if p.core, err = New(Config{PodOf: []int32{0, 1, 2}, Pods: 3, Schedules: schedules}, p.ports); err != nil {
		t.Fatal(err)
	}
	if err := p.core.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return p
}

// greet connects a pod whose greeting has a number.
func (p *planning) greet(pod link.Peer, schedules uint64) {
	p.t.Helper()
	p.core.LinkUp(1, pod, link.Caps{Name: "test"})
	h := wire.Header{Type: wire.Ack, A: wire.FeatureAgain | wire.FeatureElem, B: schedules, Credit: p.core.peers[pod].Credit().Granted()}
	if err := p.core.Deliver(1, pod, &h, nil); err != nil {
		p.t.Fatal(err)
	}
}

// submit submits a descriptor whose memory begins with content.
func (p *planning) submit(d shm.Descriptor, content []byte) {
	p.t.Helper()
	d.Class = shm.ClassArena
	d.SetBody(0, uint64(len(content)), 0, 0)
	copy(p.ports.Bytes(link.Ref{Region: RegionFirst + 1, Len: 1 << 20}), content)
	if err := p.core.Submit(2, 0, &d); err != nil {
		p.t.Fatal(err)
	}
}

// barrier begins a barrier of a communicator.
func (p *planning) barrier(req, comm uint32) {
	p.t.Helper()
	b := shm.CollBlock{Kind: shm.CollBarrier, Context: comm}
	var block [shm.CollBlockBytes]byte
	b.Encode(block[:])
	p.submit(shm.Descriptor{Op: shm.OpColl, Req: req}, block[:])
}

// reason returns why the job has failed, or nothing.
func (p *planning) reason() string {
	for p.core.Advance(3) > 0 {
	}
	if f := p.core.Failed(); f != nil {
		return f.Reason
	}
	return ""
}

// TestSchedulesAreCompared checks that a collective with a rank in a pod with other schedules ends
// the job, whether the pod greets before or after it has begun, with both pods, both numbers and the
// remedy, and that nothing else does.
func TestSchedulesAreCompared(t *testing.T) {
	const text = "collectives: pod 2 has schedules %d, pod 0 schedules 3: use images of one release for all pods of the job"
	for name, c := range map[string]struct {
		own, its uint64
		early    bool // the pod greets before the collective
		comm     uint32
		want     string
	}{
		"greets before":        {3, 4, true, 0, strings.Replace(text, "%d", "4", 1)},
		"greets after":         {3, 4, false, 0, strings.Replace(text, "%d", "4", 1)},
		"not reported":         {3, 0, true, 0, strings.Replace(text, "%d", "0", 1) + " (0: a release that does not report them)"},
		"the same":             {3, 3, true, 0, ""},
		"not compared":         {0, 4, true, 0, ""},
		"without that pod":     {3, 4, true, 9, ""},
		"without it, and late": {3, 4, false, 9, ""},
	} {
		p := newPlanning(t, c.own)
		p.greet(1, c.own)
		p.submit(shm.Descriptor{Op: shm.OpComm, Req: 1, Context: 9}, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if c.early {
			p.greet(2, c.its)
		}
		if why := p.reason(); why != "" {
			t.Errorf("%s: the job has failed without a collective: %s", name, why)
		}
		p.barrier(2, c.comm)
		if !c.early {
			if why := p.reason(); why != "" {
				t.Errorf("%s: the job has failed before the pod has greeted: %s", name, why)
			}
			p.greet(2, c.its)
		}
		if why := p.reason(); why != c.want {
			t.Errorf("%s: the job ends with %q, want %q", name, why, c.want)
		}
		if cut := cutText(c.want); c.want != "" && !strings.Contains(cut, "pod 0 schedules 3: ") {
			t.Errorf("%s: other pods read %q", name, cut)
		}
	}
}

// TestGreetingHasSchedules checks that a sidecar reports the number of its schedules in its greeting,
// and in no other frame.
func TestGreetingHasSchedules(t *testing.T) {
	p := newPlanning(t, 3)
	p.greet(1, 3)
	p.core.Flush(2, p.ports)
	p.barrier(2, 0)
	p.core.Flush(3, p.ports)
	p.core.Tick(1e9)
	p.core.Flush(1e9, p.ports)
	for i := range p.ports.frames {
		h := &p.ports.frames[i].Head
		if greeting := i == 0; h.Type == wire.Ack && (h.B == 3) != greeting || greeting && h.Type != wire.Ack {
			t.Errorf("frame %d: %v with B %d", i, h.Type, h.B)
		}
	}
	if len(p.ports.frames) < 2 {
		t.Errorf("%d frames", len(p.ports.frames))
	}
}
