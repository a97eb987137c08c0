package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// story is a core of pod 0 whose rank 0 exposes a window to the ranks 1 and 2 of pod 1.
type story struct {
	t     *testing.T
	core  *Core
	ports *lone
	seq   uint64
}

func exposing(t *testing.T) *story {
	t.Helper()
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1, 1}, Pods: 2}, ports)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	win := shm.Descriptor{Op: shm.OpWin, Class: shm.ClassArena, Context: 9}
	win.SetBody(0, 4096, 0, 0)
	if err := c.Submit(1, 0, &win); err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, link.Caps{Name: "test"})
	greeting := wire.Header{Type: wire.Ack, Credit: c.peers[1].Credit().Granted()}
	if err := c.Deliver(1, 1, &greeting, nil); err != nil {
		t.Fatal(err)
	}
	return &story{t: t, core: c, ports: ports}
}

// ask delivers a request of a rank and returns the answers, to any rank.
func (s *story) ask(kind wire.Type, rank uint32, request, exclusive uint64) []wire.Header {
	s.t.Helper()
	s.seq++
	h := wire.Header{Type: kind, Seq: s.seq, Context: 9, Src: rank, A: request, B: exclusive}
	if err := s.core.Deliver(2, 1, &h, nil); err != nil {
		s.t.Fatal(err)
	}
	s.ports.frames = nil
	s.core.Flush(2, s.ports)
	var answers []wire.Header
	for _, f := range s.ports.frames {
		if f.Head.Type != wire.Ack {
			answers = append(answers, f.Head)
		}
	}
	return answers
}
