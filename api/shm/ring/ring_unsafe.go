// Package ring is the single-producer, single-consumer ring of 64-byte
// descriptors in memory that two processes share (LAYOUT.md §4).
//
// There is no shared tail: an entry has a sequence word, and it is published if that word equals its
// position plus one. A message therefore moves one cache line between cores, with the entry and its
// publication together. The consumer's head is written rarely (Release); it is the position up to
// which the producer may overwrite entries.
//
// Either side may be hostile to the other. A consumer copies an entry once and validates the copy; a
// producer checks the head that it reads (ErrPeer). The C client has the ring in
// clientlib/c/src/ring.h.
package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// HeaderBytes precede the entries: the consumer's head on a line of its own.
const HeaderBytes = 64

// ErrPeer reports that the index that the other side has written is impossible: the other side is
// broken or hostile, and the ring must not be used any more.
var ErrPeer = errors.New("ring: the other side published an impossible index")

// Bytes returns the size of a ring of n entries.
func Bytes(n int) int { return HeaderBytes + n*shm.DescriptorBytes }

// view is the shared memory of one ring.
type view struct {
	head    *uint64 // only the consumer advances this
	entries unsafe.Pointer
	mask    uint64
}

func newView(mem []byte, n int) (view, error) {
	if n < 2 || n&(n-1) != 0 || n > 1<<20 {
		return view{}, fmt.Errorf("ring: %d entries, want a power of two between 2 and %d", n, 1<<20)
	}
	if len(mem) < Bytes(n) {
		return view{}, fmt.Errorf("ring: %d entries need %d bytes, have %d", n, Bytes(n), len(mem))
	}
	base := unsafe.Pointer(&mem[0])
	if uintptr(base)%shm.DescriptorBytes != 0 {
		return view{}, fmt.Errorf("ring: memory is not aligned to %d bytes", shm.DescriptorBytes)
	}
	return view{head: (*uint64)(base), entries: unsafe.Add(base, HeaderBytes), mask: uint64(n - 1)}, nil
}

func (v *view) entry(pos uint64) *[shm.DescriptorBytes]byte {
	return (*[shm.DescriptorBytes]byte)(unsafe.Add(v.entries, (pos&v.mask)*shm.DescriptorBytes))
}

func seqWord(e *[shm.DescriptorBytes]byte) *uint32 { return (*uint32)(unsafe.Pointer(e)) }

// Producer is the writing side. It is owned by one goroutine.
type Producer struct {
	view
	tail     uint64 // next position to write; private, so the other side cannot change it
	headSeen uint64 // the consumer's head as last read and checked
}

// NewProducer returns the producer of a ring in mem, which must be zeroed and aligned to 64 bytes.
func NewProducer(mem []byte, entries int) (*Producer, error) {
	v, err := newView(mem, entries)
	if err != nil {
		return nil, err
	}
	return &Producer{view: v}, nil
}

// Free returns the number of entries that may be pushed now. It reads the shared head only if the
// ring is full by the last one read.
func (p *Producer) Free() (int, error) {
	if used := p.tail - p.headSeen; used <= p.mask {
		return int(p.mask + 1 - used), nil
	}
	// Acquire: pairs with the store in Consumer.Release, so that the
	// consumer's reads of an entry are over before we write it again.
	h := atomic.LoadUint64(p.head)
	if h > p.tail || h < p.headSeen {
		return 0, ErrPeer
	}
	p.headSeen = h
	return int(p.mask + 1 - (p.tail - h)), nil
}

// Push publishes d. It reports false if the ring is full.
func (p *Producer) Push(d *shm.Descriptor) (bool, error) {
	if p.tail-p.headSeen > p.mask {
		n, err := p.Free()
		if n == 0 || err != nil {
			return false, err
		}
	}
	e := p.entry(p.tail)
	d.Encode(e)
	p.tail++
	// Release: everything written before (entry and payload) is visible to
	// the consumer that sees this word.
	atomic.StoreUint32(seqWord(e), uint32(p.tail))
	return true, nil
}

// Unread returns the number of entries that are published and that the consumer has not released.
// The consumer releases entries in bulk, so it may have read them.
func (p *Producer) Unread() uint64 { return p.tail - atomic.LoadUint64(p.head) }

// Pushed returns the number of entries published since the ring was created.
func (p *Producer) Pushed() uint64 { return p.tail }

// Consumer is the reading side. It is owned by one goroutine.
type Consumer struct {
	view
	pos      uint64 // next position to read; private
	released uint64 // the head as last published
}

// NewConsumer returns the consumer of a ring in mem.
func NewConsumer(mem []byte, entries int) (*Consumer, error) {
	v, err := newView(mem, entries)
	if err != nil {
		return nil, err
	}
	return &Consumer{view: v}, nil
}

// Ready reports whether an entry can be read.
func (c *Consumer) Ready() bool {
	return atomic.LoadUint32(seqWord(c.entry(c.pos))) == uint32(c.pos+1)
}

// Pop copies the next entry into d and reports whether there was one. The producer does not overwrite
// the entry before Release.
func (c *Consumer) Pop(d *shm.Descriptor) bool {
	e := c.entry(c.pos)
	// Acquire: pairs with the store in Push.
	if atomic.LoadUint32(seqWord(e)) != uint32(c.pos+1) {
		return false
	}
	d.Decode(e)
	c.pos++
	if c.pos-c.released > c.mask/2 {
		c.Release()
	}
	return true
}

// Release lets the producer overwrite all popped entries. Pop calls it after each half of the ring;
// the consumer calls it before it sleeps.
func (c *Consumer) Release() {
	if c.released != c.pos {
		c.released = c.pos
		atomic.StoreUint64(c.head, c.pos)
	}
}
