// Package local is the link of a sidecar to itself: messages between ranks of
// one pod. A frame is delivered straight from the memory it lies in, and a
// remote read or write is one copy.
package local

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Limits of one link.
const (
	queueMax   = 1024    // frames between Post and Poll
	eagerMax   = 8 << 10 // beyond it one copy by Read beats two through the pool
	copyPerRun = 1 << 20 // bytes of remote operations moved in one Poll
)

// Link delivers frames to the sidecar that posts them.
type Link struct {
	self   link.Peer
	memory link.Memory
	queue  []*link.Frame // posted, oldest first: unchanged until they are acknowledged, which is when they are delivered
	spare  []*link.Frame
	ops    []operation
	keys   map[uint64]link.Ref
}

// operation is a remote read or write under way.
type operation struct {
	token  uint64
	dst    link.Ref
	src    link.Ref
	done   uint64
	notify uint64
	write  bool
}

// New makes the link of the sidecar self. memory finds the bytes of Refs.
func New(self link.Peer, memory link.Memory) *Link {
	return &Link{self: self, memory: memory, keys: map[uint64]link.Ref{}}
}

// SetMemory replaces the memory given to New, for a caller that is the memory
// itself and could not name it earlier.
func (l *Link) SetMemory(m link.Memory) { l.memory = m }

// Caps says what the link can do: everything.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "local", Register: true, Read: true, Write: true, InOrder: true, Notify: true, GatherMax: 1, EagerMax: eagerMax}
}

// Post queues frames for the next Poll.
func (l *Link) Post(_ link.Peer, frames []*link.Frame) int {
	n := min(len(frames), queueMax-len(l.queue))
	l.queue = append(l.queue, frames[:n]...)
	return n
}

// Poll delivers what was posted before it, and moves a bounded part of the
// remote operations.
func (l *Link) Poll(sink link.Sink) int {
	work := len(l.queue)
	if work > 0 {
		// Deliveries may post again: those frames are for the next Poll.
		batch := l.queue
		l.queue = l.spare[:0]
		for _, f := range batch {
			payload := f.Inline[:]
			if f.Payload.Region != 0 {
				payload = l.memory.Bytes(f.Payload)
			}
			if err := sink.Deliver(l.self, &f.Head, payload[:f.Head.Length]); err != nil {
				l.queue, l.spare = l.queue[:0], batch
				sink.Down(l.self, fmt.Errorf("%w: %w", link.ErrProtocol, err))
				return work
			}
		}
		l.spare = batch
	}
	return work + l.move(sink)
}

// move copies for the oldest operations.
func (l *Link) move(sink link.Sink) int {
	budget := uint64(copyPerRun)
	work := 0
	for len(l.ops) > 0 && budget > 0 {
		work++
		op := &l.ops[0]
		n := min(budget, op.src.Len-op.done)
		copy(l.memory.Bytes(op.dst.Slice(op.done, n)), l.memory.Bytes(op.src.Slice(op.done, n)))
		op.done += n
		budget -= n
		if op.done < op.src.Len {
			break
		}
		end := *op
		l.ops = l.ops[:copy(l.ops, l.ops[1:])]
		sink.Done(l.self, end.token, nil)
		if end.write && end.notify != 0 {
			sink.Written(l.self, end.notify)
		}
	}
	return work
}

// Register makes ref reachable under a random key.
func (l *Link) Register(ref link.Ref) (link.Key, error) {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		k := binary.LittleEndian.Uint64(b[:])
		if _, taken := l.keys[k]; k != 0 && !taken {
			l.keys[k] = ref
			return link.Key{Key: k}, nil
		}
	}
}

// Deregister ends a registration; operations under way have their range.
func (l *Link) Deregister(k link.Key) { delete(l.keys, k.Key) }

// resolve checks an access against its registration.
func (l *Link) resolve(k link.Key, n uint64) (link.Ref, error) {
	ref, ok := l.keys[k.Key]
	if !ok || n > ref.Len || k.Addr > ref.Len-n {
		return link.Ref{}, fmt.Errorf("%w: %d bytes at %d", link.ErrKey, n, k.Addr)
	}
	return ref.Slice(k.Addr, n), nil
}

// Read copies registered memory into dst.
func (l *Link) Read(_ link.Peer, token uint64, dst link.Ref, src link.Key) error {
	from, err := l.resolve(src, dst.Len)
	if err == nil {
		l.ops = append(l.ops, operation{token: token, dst: dst, src: from})
	}
	return err
}

// Write copies src into registered memory.
func (l *Link) Write(_ link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	to, err := l.resolve(dst, src.Len)
	if err == nil {
		l.ops = append(l.ops, operation{token: token, dst: to, src: src, notify: notify, write: true})
	}
	return err
}

// Forget drops what is queued.
func (l *Link) Forget(link.Peer) { l.queue, l.ops = l.queue[:0], nil }

// Close has nothing to give back.
func (l *Link) Close() error { return nil }
