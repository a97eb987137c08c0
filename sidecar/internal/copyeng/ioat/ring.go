package ioat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

const (
	descriptorBytes = 64
	slots           = 512
	// inFlightMax bounds the descriptors that the device has. It is less than half of the ring,
	// so that a completion word that is older than what is known to have ended is never mistaken
	// for progress.
	inFlightMax = slots/2 - 1
	ringBytes   = slots * descriptorBytes
	// page separates the completion word, which the device writes, from the descriptors.
	page = 4096
	// OwnBytes is the memory that a channel maps for itself: its descriptors, and the page of
	// its completion word.
	OwnBytes = ringBytes + page
)

// Words of a descriptor, and bits of its control word.
const (
	descSize        = 0
	descControl     = 4
	descSource      = 8
	descDestination = 16
	descNext        = 24

	ctlCompletion = 1 << 3 // the device writes the completion word
	ctlNull       = 1 << 5 // no copy
)

// ring is the descriptors of a channel, linked in a circle, and its completion word.
// Descriptors have consecutive numbers, from 0 at the start of the channel; number n is in
// slot n % slots.
type ring struct {
	mem  []byte
	iova uint64
	word *atomic.Uint64
}

// newRing allocates the memory and maps it.
func newRing(d Memory) (*ring, error) {
	mem, err := d.Alloc(OwnBytes)
	if err != nil {
		return nil, fmt.Errorf("ioat: memory of the descriptors: %w", err)
	}
	r := &ring{mem: mem, word: wordOf(mem[ringBytes:])}
	if r.iova, err = d.Map(mem); err != nil {
		return nil, errors.Join(err, d.Free(mem))
	}
	if r.iova%descriptorBytes != 0 {
		err := fmt.Errorf("ioat: the descriptors are at %#x for the device, which is not a multiple of %d", r.iova, descriptorBytes)
		return nil, errors.Join(err, d.Unmap(mem, r.iova), d.Free(mem))
	}
	for n := range uint64(slots) {
		binary.LittleEndian.PutUint64(r.slot(n)[descNext:], r.at(n+1))
	}
	return r, nil
}

func (r *ring) slot(n uint64) []byte {
	at := n % slots * descriptorBytes
	return r.mem[at : at+descriptorBytes : at+descriptorBytes]
}

// at returns the device's address of a descriptor.
func (r *ring) at(n uint64) uint64 { return r.iova + n%slots*descriptorBytes }

// completion returns the device's address of the completion word.
func (r *ring) completion() uint64 { return r.iova + ringBytes }

func (r *ring) put(n uint64, size, control uint32, src, dst uint64) {
	d := r.slot(n)
	binary.LittleEndian.PutUint32(d[descSize:], size)
	binary.LittleEndian.PutUint32(d[descControl:], control)
	binary.LittleEndian.PutUint64(d[descSource:], src)
	binary.LittleEndian.PutUint64(d[descDestination:], dst)
}

// ended returns how many descriptors have ended, if done had ended before, and the device has
// now written the address of the last one. ok is false if that address is none of a descriptor
// that the device has, or had last.
func (r *ring) ended(status, done, posted uint64) (n uint64, ok bool) {
	at := status & addressMask
	if at < r.iova || at >= r.iova+ringBytes {
		return done, false
	}
	ahead := ((at-r.iova)/descriptorBytes + 1 + slots - done%slots) % slots
	switch {
	case ahead > inFlightMax: // older than what is known
		return done, true
	case done+ahead > posted:
		return done, false
	}
	return done + ahead, true
}
