package virtual

import (
	"bytes"
	"runtime"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pull is a remote read in fragments, as in paper 003 (section 2.2): the receiver asks for
// blocks of fragments, and its processor handles and copies each fragment. If the copies are
// offloaded, the processor goes on after the submission, and waits at the last fragment for
// all copies (section 3.1).
//
//	receiver                        sender's adapter
//	  ask, ask ──────────────────►
//	     ◄════════ fragment ══════  handled, and copied or submitted
//	  a block is complete: ask ──►
//	     ◄════════ the last one ══  waits for the copies; Done
type pull struct {
	n, to    *node
	token    uint64
	dst      link.Ref
	src      link.Key
	asked    uint64
	done     uint64
	transfer copyeng.Transfer
	memory   copyeng.Hold
}

func (n *node) pull(to *node, token uint64, dst link.Ref, src link.Key) {
	p := &pull{n: n, to: to, token: token, dst: dst, src: src}
	for range n.world.cfg.Model.Pull.Blocks {
		p.ask()
	}
}

// ask asks for the next block, if there is one.
func (p *pull) ask() {
	m := p.n.world.cfg.Model
	from := p.asked
	end := min(from+uint64(m.Pull.Block)*m.Pull.Fragment, p.dst.Len)
	if from == end {
		return
	}
	p.asked = end
	_, asked := p.n.pass(p.to, wire.HeaderBytes, p.n.now, 0) // a request does not occupy the adapters
	p.n.world.alone.add(asked, func(link.Sink) error {
		for at := from; at < end; at += m.Pull.Fragment {
			size := min(m.Pull.Fragment, end-at)
			src := p.src
			src.Addr += at
			data, err := p.to.resolve(src, size)
			if err != nil {
				p.n.inbox.add(asked+m.Latency, func(sink link.Sink) error { sink.Done(p.to.self, p.token, err); return nil })
				return nil
			}
			data = bytes.Clone(data)
			_, arrives := p.to.transmit(p.n, frameBytes+size, asked)
			p.n.inbox.add(arrives, func(sink link.Sink) error { p.handle(sink, at, data, at+size == end); return nil })
		}
		return nil
	})
}

// frameBytes is the bytes of a frame in addition to its fragment: header, addresses, type,
// checksum, preamble and gap (IEEE 802.3, clause 3), and the engine's header.
const frameBytes = 38 + wire.HeaderBytes

// handle handles a fragment; last means that it completes its block.
func (p *pull) handle(sink link.Sink, at uint64, data []byte, last bool) {
	n, m := p.n, p.n.world.cfg.Model
	n.spend(m.Pull.Handle)
	size := uint64(len(data))
	dst := n.engine.Bytes(p.dst.Slice(at, size))
	switch {
	case n.world.cfg.Free:
		copy(dst, data)
	case size > offloadFragment && n.copies.Takes(p.dst.Len):
		for !n.copies.Submit(&p.transfer, &p.memory, at, dst, data) {
			n.await()
		}
	default:
		copy(dst, data)
		n.copied(size, m.Pull.Copy*float64(size))
	}
	p.done += size
	if last {
		n.copies.Poll() // the cleanup of section 3.2
		p.ask()
	}
	if p.done == p.dst.Len {
		for p.memory.Pending() {
			n.await()
		}
		sink.Done(p.to.self, p.token, nil)
	}
}

// Thresholds of offloaded copies (003, section 4.1).
const (
	offloadFragment = 1 << 10
	offloadMessage  = 64 << 10
)

// newCopies returns what a node copies with.
func (w *World) newCopies(n *node) *copyeng.Copies {
	if !w.cfg.Offload {
		return copyeng.New(copyeng.Config{})
	}
	n.dma = &dma{node: n}
	c := copyeng.New(copyeng.Config{
		Kind: "ioat", Threshold: offloadMessage + 1, Open: func(int) ([]*copyeng.Lane, error) { return []*copyeng.Lane{{Channel: n.dma}}, nil },
	})
	for !c.Takes(1 << 30) { // the channel is opened by a goroutine
		runtime.Gosched()
	}
	return c
}

// perByte returns the time of a copy by the processor between ranks of the node.
func (n *node) perByte() float64 {
	if n.world.cfg.Cached {
		return n.world.cfg.Model.Pull.Cached
	}
	return n.world.cfg.Model.Pull.Copy
}

// await lets the processor poll until the copy engine has ended its oldest copy.
func (n *node) await() {
	if d := n.dma; len(d.pending) > 0 {
		n.spend(max(d.pending[0].at-n.now, 0))
	}
	n.copies.Poll()
}

// dma is the copy engine of a node, as a channel.
type dma struct {
	node    *node
	free    float64 // when it becomes idle
	pending []ending
}

// ending is a copy and its end.
type ending struct {
	token uint64
	at    float64
}

// Name implements copyeng.Channel.
func (d *dma) Name() string { return "ioat" }

// Submit implements copyeng.Channel. The processor writes a descriptor for each part of the
// copy within a page.
func (d *dma) Submit(dst, src []byte, token uint64) bool {
	p := d.node.world.cfg.Model.Pull
	descriptors := (uint64(len(src)) + p.Chunk - 1) / p.Chunk
	d.node.spend(float64(descriptors) * p.Submit)
	copy(dst, src)
	d.free = max(d.free, d.node.now) + p.Engine*float64(len(src))
	d.pending = append(d.pending, ending{token, d.free})
	d.node.inbox.add(d.free, func(link.Sink) error { return nil }) // the engine of the node polls
	return true
}

// Poll implements copyeng.Channel.
func (d *dma) Poll(done func(token uint64, err error)) (n int) {
	for len(d.pending) > 0 && d.pending[0].at <= d.node.now {
		token := d.pending[0].token
		d.pending = d.pending[1:]
		done(token, nil)
		n++
	}
	return n
}

// Pending implements copyeng.Channel.
func (d *dma) Pending() int { return len(d.pending) }

// Close implements copyeng.Channel.
func (d *dma) Close() error {
	d.pending = nil
	return nil
}
