//go:build rdma && rdmaguest

package verbs

import (
	"encoding/binary"
	"errors"
	"log/slog"
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
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// rig is the engine of a pod over the machine's device, without the processes around it:
// the goroutine of a test executes its turns, and is its ranks, too, which access the
// rings directly. No side sleeps, and none is woken.
type rig struct {
	engine *engine.Engine
	link   *Link
	ranks  []*rank
}

// rank is an application's side of its rings.
type rank struct {
	t        *testing.T
	engine   *engine.Engine
	submit   *ring.Producer
	complete *ring.Consumer
	d        shm.Descriptor
	received uint64 // value of the last message
	n        uint32
}

// setting is the configuration that sidecars of a job agree upon.
type setting struct {
	channel eagerring.Kind
	inOrder bool // tuning.inOrder: writes are detected in memory, and not only by their notifications
}

func (s setting) String() string {
	if s.inOrder {
		return s.channel.String() + " in order"
	}
	return s.channel.String()
}

// settings are the configurations that differ: without order every channel but Pipeline
// is PiggyBack.
var settings = []setting{
	{eagerring.PiggyBack, false},
	{eagerring.Pipeline, false},
	{eagerring.PiggyBack, true},
	{eagerring.Basic, true},
	{eagerring.Pipeline, true},
	{eagerring.ZeroCopy, true},
}

// newRig makes the engine of pod self; podOf gives the pod of each rank.
func newRig(t *testing.T, self link.Peer, podOf []int32, s setting) *rig {
	t.Helper()
	pods := 1
	for _, p := range podOf {
		pods = max(pods, int(p)+1)
	}
	stream, err := tcp.New(nil, pods)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{}
	quiet := slog.New(slog.DiscardHandler)
	r.link, err = newLink(Config{Peers: pods, Ranks: 1, Stream: stream, Log: quiet, InOrder: s.inOrder, Reuse: bootstrap.ReuseOff}, nil, openTest(t))
	if err != nil {
		t.Fatal(err)
	}
	loop, begun := local.New(self, nil), time.Now()
	r.engine, err = engine.New(engine.Config{
		Core: core.Config{Self: self, PodOf: podOf, Pods: pods, Channel: s.channel}, Local: loop, Remote: r.link, Dialer: r, Log: quiet,
	}, func() int64 { return int64(time.Since(begun)) + 1 }) // like the sidecar's
	if err != nil {
		t.Fatal(err)
	}
	loop.SetMemory(r.engine)
	r.link.SetMemory(r.engine)
	stream.SetMemory(r.engine)
	for n, pod := range podOf {
		if pod == int32(self) {
			r.ranks = append(r.ranks, newRank(t, r.engine, uint32(n)))
		}
	}
	return r
}

// close ends the engine, and its link.
func (r *rig) close(t *testing.T) {
	t.Helper()
	if err := r.engine.Close(); err != nil {
		t.Error(err)
	}
}

// Connect implements engine.Dialer: connections are made before they are asked for.
func (r *rig) Connect(link.Peer) {}

// Cancel implements engine.Dialer.
func (r *rig) Cancel(link.Peer) {}

// joined hands over a connection.
func (r *rig) joined(t *testing.T, peer link.Peer, fd int, e *Endpoint) {
	r.engine.Joined(peer, func() error { return r.link.Join(peer, fd, e) }, func() { t.Error("a connection is not accepted") })
}

func newRank(t *testing.T, e *engine.Engine, number uint32) *rank {
	t.Helper()
	g := segment.DefaultGeometry
	control := words(g.Bytes())
	c, err := segment.Format(control, g, number)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(c, words(1<<20), number)
	if err == nil {
		err = e.Attach(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{t: t, engine: e}
	mem, n := c.SubmitRing()
	if r.submit, err = ring.NewProducer(mem, n); err != nil {
		t.Fatal(err)
	}
	mem, n = c.CompleteRing()
	if r.complete, err = ring.NewConsumer(mem, n); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rank) push() {
	if ok, err := r.submit.Push(&r.d); !ok || err != nil {
		r.t.Fatalf("not submitted: %v", errors.Join(err, errors.New("the ring is full")))
	}
}

// recv posts a receive for 8 bytes.
func (r *rank) recv(from uint32) {
	r.n = (r.n + 1) % 64 // a number is free again when its request has ended
	r.d = shm.Descriptor{Op: shm.OpRecv, Req: r.n, Class: shm.ClassInline, InlineLen: 8, Peer: from, Tag: 7}
	r.push()
}

// send sends 8 bytes as clients do: without a completion.
func (r *rank) send(to uint32, value uint64) {
	r.d = shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: to, Tag: 7}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	r.d.SetInline(b[:])
	r.push()
}

// took returns a message if one has arrived.
func (r *rank) took() bool {
	if !r.complete.Pop(&r.d) {
		return false
	}
	if r.d.Op != shm.OpDone || r.d.Status != shm.StatusOK {
		r.t.Fatalf("completion: op %d, status %d; the job's failure: %+v", r.d.Op, r.d.Status, r.engine.Failure())
	}
	r.received = binary.LittleEndian.Uint64(r.d.Inline())
	return true
}
