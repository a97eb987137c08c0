package virtual

import (
	"bytes"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// free reports whether a frame costs no CPU time, because it stands for work of the
// adapter: the core's acknowledgements are those of a reliable connection.
func free(t wire.Type) bool {
	return t == wire.Ack || t == wire.Heartbeat || t == wire.Ring || t == wire.Look
}

// transmit sends n bytes that are ready at a time, and returns when they have left and when
// they are at the peer: both adapters are busy with the message while it passes, cut
// through.
func (n *node) transmit(to *node, size uint64, ready float64) (sent, arrives float64) {
	return n.pass(to, size, ready, n.world.cfg.Model.Adapter)
}

// pass does what transmit does, for a message that occupies the adapters for a time in
// addition to its bytes.
func (n *node) pass(to *node, size uint64, ready, adapter float64) (sent, arrives float64) {
	m := n.world.cfg.Model
	passing := adapter + m.PerByte*float64(size)
	sent = max(max(ready, n.sendFree)+passing, n.overBus(size, ready))
	n.sendFree = sent
	arrives = max(sent-passing+m.Latency, to.recvFree) + passing
	to.recvFree = arrives
	return sent, arrives
}

// overBus moves n bytes over the memory bus by the adapter, from a time on, and returns
// when that is complete. The bus is granted in the order of requests: a sender's side
// requests it when a message is ready, a receiver's when it handles the message (unload).
func (n *node) overBus(size uint64, from float64) float64 {
	bus := n.world.cfg.Model.BusPerByte * float64(size)
	if bus == 0 {
		return from
	}
	n.busFree = max(from, n.busFree) + bus
	return n.busFree
}

// unload moves n bytes that have arrived over the bus (overBus): the CPU sees them when they
// are in memory.
func (n *node) unload(size uint64) {
	since := n.now - n.world.cfg.Model.PerByte*float64(size)
	n.now = max(n.now, n.overBus(size, since))
}

// Post implements link.Link: it charges each frame's overhead and its payload, copied or
// gathered.
func (n *node) Post(peer link.Peer, frames []*link.Frame) int {
	to := n.world.nodes[peer]
	for _, f := range frames {
		before := n.now
		payload, lease := n.load(f)
		if !free(f.Head.Type) {
			n.spend(n.world.cfg.Model.SendCPU)
			n.sending += n.now - before
		}
		head := f.Head
		adapter := n.world.cfg.Model.Adapter
		if free(head.Type) {
			adapter = 0
		}
		sent, arrives := n.pass(to, wire.HeaderBytes+uint64(head.Length), n.now, adapter)
		if lease != (gather.Lease{}) {
			n.inbox.add(sent, func(link.Sink) error { n.chooser.Done(lease); return nil })
		}
		from := n.self
		to.inbox.add(arrives, func(sink link.Sink) error { return to.deliver(sink, from, &head, payload) })
	}
	return len(frames)
}

// load makes a frame's payload ready to leave: payload in memory of the application is
// copied, or gathered if the chooser decides so.
func (n *node) load(f *link.Frame) ([]byte, gather.Lease) {
	if f.Payload.Region == core.RegionNone {
		return bytes.Clone(f.Inline[:f.Head.Length]), gather.Lease{}
	}
	ref := f.Payload
	ref.Len = uint64(f.Head.Length)
	payload := bytes.Clone(n.engine.Bytes(ref))
	if !n.mine[ref.Region] {
		return payload, gather.Lease{}
	}
	path, m := n.world.path(f.Head.Type), n.world.cfg.Model
	if n.chooser != nil {
		if ref.Len >= minBytes {
			n.spend(m.Lookup)
		}
		if lease, ok := n.chooser.Choose(path, ref); ok {
			return payload, lease
		}
	}
	n.copied(ref.Len, n.world.copyCurve(path).At(ref.Len))
	return payload, gather.Lease{}
}

// minBytes is the message size from which on buffers are looked up (000, section 5.1.1).
const minBytes = 128

// path returns the path of a frame.
func (w *World) path(t wire.Type) reuse.Path {
	switch t {
	case wire.Put, wire.Acc:
		return reuse.PathPut
	case wire.Got:
		return reuse.PathGet
	}
	return w.cfg.Path
}

func (w *World) copyCurve(p reuse.Path) platform.Curve {
	switch p {
	case reuse.PathSend:
		return w.cfg.Model.Copy.Send
	case reuse.PathPut, reuse.PathGet:
		return w.cfg.Model.Copy.OneSided
	}
	return w.cfg.Model.Copy.Write
}

// Poll implements link.Link: it delivers what has arrived.
func (n *node) Poll(sink link.Sink) (work int) {
	for n.inbox.first() <= n.now {
		a := n.inbox.pop()
		if err := a.what(sink); err != nil {
			sink.Down(0, fmt.Errorf("%w: %w", link.ErrProtocol, err))
		}
		work++
	}
	return work
}

// placeMin is the size from which on payloads are placed by the link.
const placeMin = 2 << 10

// deliver copies a payload out of the receiver's registered memory: the copy that remains
// (000, section 3.1).
func (n *node) deliver(sink link.Sink, from link.Peer, h *wire.Header, payload []byte) error {
	if !free(h.Type) {
		n.spend(n.world.cfg.Model.RecvCPU)
	}
	if h.Type == wire.Ready {
		n.offers[[2]uint32{h.Src, h.Dst}]++
	}
	if h.Length > link.InlineMax {
		n.unload(uint64(h.Length))
		n.copied(uint64(h.Length), n.world.copyCurve(n.world.path(h.Type)).At(uint64(h.Length)))
	}
	if len(payload) < placeMin {
		return sink.Deliver(from, h, payload)
	}
	dst, err := sink.Place(from, h)
	if err != nil {
		return err
	}
	copy(dst, payload)
	return sink.Placed(from)
}
