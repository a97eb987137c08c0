package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestElemForThoseWhoKnowIt checks that the type of a message's elements is sent only to peers
// whose greeting has the feature, also if the message was submitted before the greeting
// arrived.
func TestElemForThoseWhoKnowIt(t *testing.T) {
	for _, knows := range []uint64{0, wire.FeatureElem, ^uint64(0)} {
		ports := &lone{regions: map[link.Region][]byte{}}
		c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2}, ports)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		send := func(req uint32, n uint64) {
			t.Helper()
			d := shm.Descriptor{Op: shm.OpSend, Req: req, Flags: shm.FlagTyped, Status: shm.Status(shm.TypeFloat64), Peer: 1, Class: shm.ClassArena}
			d.SetBody(0, n, 0, 0)
			if err := c.Submit(1, 0, &d); err != nil {
				t.Fatal(err)
			}
		}
		send(1, 8)
		c.LinkUp(1, 1, link.Caps{Name: "test"})
		if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, A: knows, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
			t.Fatal(err)
		}
		send(2, 512<<10)
		c.Flush(1, ports)
		want := uint8(0)
		if knows&wire.FeatureElem != 0 {
			want = shm.TypeFloat64
		}
		messages := 0
		for _, f := range ports.frames {
			if f.Head.Type == wire.Eager || f.Head.Type == wire.RTS {
				messages++
				if f.Head.Elem != want {
					t.Errorf("a peer whose greeting says %#x gets %v with elements of type %d, want %d", knows, f.Head.Type, f.Head.Elem, want)
				}
			}
		}
		if messages != 2 {
			t.Errorf("%d messages were sent, want 2", messages)
		}
	}
}

// heard is a lone that records the completions of its core.
type heard struct {
	lone
	done []shm.Descriptor
}

func (h *heard) Complete(_ SessionID, d *shm.Descriptor) { h.done = append(h.done, *d) }

// TestNothingBeyondFeatures checks that a client receives the data and the type of a message
// only if it has offered the feature, in receives and in probes.
func TestNothingBeyondFeatures(t *testing.T) {
	for _, x := range []struct{ feature, data, elem uint64 }{{0, 0, 0}, {shm.FeatureData, 1, 0}, {shm.FeatureTypes, 0, 1}, {shm.FeaturesAll, 1, 1}} {
		ports := &heard{lone: lone{regions: map[link.Region][]byte{}}}
		c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2}, ports)
		if err == nil {
			err = c.Attach(1, 0, 0, shm.FeaturesRequired|x.feature, link.Ref{Region: RegionFirst, Len: 4096}, link.Ref{Region: RegionFirst + 1, Len: 4096})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.LinkUp(1, 1, link.Caps{Name: "test"})
		if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, A: ^uint64(0), Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
			t.Fatal(err)
		}
		ask := func(op shm.Op, req uint32, tag uint64) {
			t.Helper()
			d := shm.Descriptor{Op: op, Req: req, Peer: 1, Tag: tag, Class: shm.ClassInline}
			if err := c.Submit(1, 0, &d); err != nil {
				t.Fatal(err)
			}
		}
		arrive := func(h wire.Header) {
			t.Helper()
			h.Type, h.Src, h.Length, h.A = wire.Eager, 1, 8, 8
			if err := c.Deliver(1, 1, &h, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		ask(shm.OpProbe, 1, 5)
		arrive(wire.Header{Seq: 1, Tag: 5, Flags: wire.FlagData, B: 77})
		ask(shm.OpRecv, 2, 5)
		ask(shm.OpRecv, 3, 6)
		arrive(wire.Header{Seq: 2, Tag: 6, Elem: shm.TypeFloat64})
		if len(ports.done) != 3 {
			t.Fatalf("%d completions, want 3: %+v", len(ports.done), ports.done)
		}
		for _, d := range ports.done {
			flag, word := shm.FlagData, 77*x.data
			if d.Req == 3 {
				flag, word = shm.FlagTyped, uint64(shm.TypeFloat64)*x.elem
			}
			if word == 0 {
				flag = 0
			}
			if d.Flags != flag || uint64(d.Context) != word {
				t.Errorf("features %#x: request %d ends with flags %#x and context %d, want %#x and %d", x.feature, d.Req, d.Flags, d.Context, flag, word)
			}
		}
	}
}

// TestElemRefused checks that a send is refused if it has a type together with data or a
// reply, or an invalid type.
func TestElemRefused(t *testing.T) {
	for name, d := range map[string]shm.Descriptor{
		"with data":    {Flags: shm.FlagTyped | shm.FlagData, Status: 1},
		"with a reply": {Flags: shm.FlagTyped | shm.FlagReply, Status: 1},
		"beyond":       {Flags: shm.FlagTyped, Status: wire.ElemMax + 1},
		"far beyond":   {Flags: shm.FlagTyped, Status: 1 << 31},
	} {
		c, _ := ringed(t, link.Caps{Name: "test"})
		d.Op, d.Peer, d.Class = shm.OpSend, 1, shm.ClassInline
		if err := c.Submit(1, 0, &d); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
