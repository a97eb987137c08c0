package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sendSlots is how many messages of all connections are staged at once: 1 MiB of locked
// memory.
const sendSlots = 256

// stage is the registered memory in which messages are assembled, a slot each. Its slots
// belong to the engine's goroutine; a request owns one from the time that it is filled
// until the device has read it.
type stage struct {
	mem      []byte
	at       region
	free     []int32
	starving bool // some connection waits for a slot
}

func (s *stage) open(n nic) (err error) {
	if s.mem, err = unix.Mmap(-1, 0, sendSlots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return fmt.Errorf("verbs: memory for messages: %w", err)
	}
	if s.at, err = n.register(s.mem, 0, false); err != nil {
		return fmt.Errorf("verbs: registering memory for messages: %w", err)
	}
	for i := range int32(sendSlots) {
		s.free = append(s.free, i)
	}
	return nil
}

// deregister ends the registration, before the device is closed; unmap releases the
// memory afterwards.
func (s *stage) deregister(n nic) error {
	if s.at.handle == 0 {
		return nil
	}
	return n.deregister(s.at)
}

func (s *stage) unmap() error {
	if s.mem == nil {
		return nil
	}
	return unix.Munmap(s.mem)
}

// slot returns the memory of a slot, and addr its address for the device.
func (s *stage) slot(n int32) []byte { return s.mem[int(n)*slotBytes : (int(n)+1)*slotBytes] }

func (s *stage) addr(n int32) uint64 { return s.at.addr + uint64(n)*slotBytes }

// batchMax bounds the requests of one call.
const batchMax = 16

// batch holds the requests of one connection that the next call posts.
type batch struct {
	requests []request
	slots    []int32 // slots that are free once it is posted
	inline   int     // bytes that a post copies
}

// todo holds the work for the next Commit, and for the next turn.
type todo struct {
	pending  []*conn   // connections that have something to post
	late     []*conn   // connections with a part to register in the next turn
	lentLate []*lentQP // lentQPs with a part to register in the next turn
}

// idle reports whether nothing waits for the next turn.
func (t *todo) idle() bool { return len(t.late) == 0 && len(t.lentLate) == 0 }
