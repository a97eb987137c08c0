package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// receives is memory for messages of peers, a slot each, and the queue from which a
// device takes the slots: that of one connection, or the shared one.
//
//	device:  takes a slot for a message  ->  completion  ->  the engine hands it over
//	         ^------------ posted again, batch at a time ------------'
type receives struct {
	nic   nic
	queue receiver
	id    uint64 // id of the completions of these receives, without the slot
	mem   []byte
	at    region
	free  []int32 // slots whose message was handled, not posted again yet
	batch int     // slots posted by one call
}

// receiver is a queue to which receives are posted: a pair's, or a shared one.
type receiver interface {
	// receive posts slots of slotBytes in r, whose completions have the ids id|slot.
	receive(r region, id uint64, slots []int32) error
}

// newReceives makes memory for slots; use posts them to a queue.
func newReceives(n nic, slots, batch int) (*receives, error) {
	mem, err := unix.Mmap(-1, 0, slots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for receives: %w", err)
	}
	at, err := n.register(mem, 0, false)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("registering memory for receives: %w", err), unix.Munmap(mem))
	}
	r := &receives{nic: n, mem: mem, at: at, batch: batch, free: make([]int32, 0, slots)}
	for i := range int32(slots) {
		r.free = append(r.free, i)
	}
	return r, nil
}

// use posts all slots to queue, to which they are also posted later.
func (r *receives) use(queue receiver, id uint64) error {
	r.queue, r.id = queue, id
	return r.post()
}

// post posts the free slots, in calls of batchMax.
func (r *receives) post() error {
	for list := r.free; len(list) > 0; {
		n := min(len(list), batchMax)
		if err := r.queue.receive(r.at, r.id, list[:n]); err != nil {
			return fmt.Errorf("posting receives: %w", err)
		}
		list = list[n:]
	}
	r.free = r.free[:0]
	return nil
}

// repost frees a slot whose message was handled, and returns how many slots were posted.
func (r *receives) repost(slot int32) (posted int, err error) {
	if r.free = append(r.free, slot); len(r.free) < r.batch {
		return 0, nil
	}
	posted = len(r.free)
	return posted, r.post()
}

func (r *receives) has(slot int) bool    { return slot < len(r.mem)/slotBytes }
func (r *receives) slot(slot int) []byte { return r.mem[slot*slotBytes:][:slotBytes] }

// close releases the memory. The queue must have been destroyed.
func (r *receives) close() error {
	return errors.Join(r.nic.deregister(r.at), unix.Munmap(r.mem))
}
