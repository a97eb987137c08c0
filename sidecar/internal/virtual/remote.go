package virtual

import (
	"bytes"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pins makes a node's link a regcache.Registrar for memory that is gathered.
type pins struct{ node *node }

// Register pins memory, which takes CPU time.
func (p pins) Register(ref link.Ref) (link.Key, error) {
	p.node.spend(p.node.world.cfg.Model.Register.At(ref.Len))
	return p.node.Register(ref)
}

// Deregister ends registrations.
func (p pins) Deregister(keys []link.Key) {
	for _, k := range keys {
		p.node.Deregister(k)
	}
}

// Register implements link.Remote. It costs nothing: large buffers are in the
// papers' registration caches, which their benchmarks warm up.
func (n *node) Register(ref link.Ref) (link.Key, error) {
	n.nextKey++
	n.keys[n.nextKey] = ref
	return link.Key{Key: n.nextKey}, nil
}

// Deregister implements link.Remote.
func (n *node) Deregister(k link.Key) { delete(n.keys, k.Key) }

func (n *node) resolve(k link.Key, size uint64) ([]byte, error) {
	ref, ok := n.keys[k.Key]
	if !ok || size > ref.Len || k.Addr > ref.Len-size {
		return nil, fmt.Errorf("%w: %d bytes at %d", link.ErrKey, size, k.Addr)
	}
	return n.engine.Bytes(ref.Slice(k.Addr, size)), nil
}

// Read implements link.Remote: it sends a request to the peer's adapter, which answers
// without its CPU.
func (n *node) Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error {
	to := n.world.nodes[peer]
	n.spend(n.world.cfg.Model.SendCPU)
	if n.world.cfg.Model.Pull != nil {
		n.pull(to, token, dst, src)
		return nil
	}
	// No transfer over the peer's bus: its adapter handles the request itself.
	_, asked := n.pass(to, wire.HeaderBytes, n.now, 0)
	n.world.alone.add(asked, func(link.Sink) error {
		data, err := to.resolve(src, dst.Len)
		data = bytes.Clone(data)
		size := wire.HeaderBytes + dst.Len
		if err != nil {
			size = wire.HeaderBytes
		}
		_, arrives := to.transmit(n, size, asked)
		n.inbox.add(arrives, func(sink link.Sink) error {
			n.spend(n.world.cfg.Model.RecvCPU)
			copy(n.engine.Bytes(dst), data)
			sink.Done(peer, token, err)
			return nil
		})
		return nil
	})
	return nil
}

// Write implements link.Remote. It completes when the peer's adapter has acknowledged it.
func (n *node) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	to, m := n.world.nodes[peer], n.world.cfg.Model
	small := src.Region == core.RegionRings // a ring's slot, which the core has copied into
	if small {
		n.copied(src.Len, m.Copy.Write.At(src.Len))
	}
	n.spend(m.SendCPU)
	data := bytes.Clone(n.engine.Bytes(src))
	_, arrives := n.transmit(to, wire.HeaderBytes+src.Len, n.now)
	from := n.self
	to.inbox.add(arrives, func(sink link.Sink) error {
		target, err := to.resolve(dst, uint64(len(data)))
		if err == nil {
			copy(target, data)
			if small { // and from which the peer copies
				to.spend(m.RecvCPU)
				to.copied(uint64(len(data)), m.Copy.Write.At(uint64(len(data))))
			}
			if notify != 0 && n.world.cfg.Caps.Notify {
				to.spend(m.RecvCPU)
				sink.Written(from, notify)
			}
		}
		n.inbox.add(arrives+m.Latency, func(sink link.Sink) error { sink.Done(peer, token, err); return nil })
		return nil
	})
	return nil
}
