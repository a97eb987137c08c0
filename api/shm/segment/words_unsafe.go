package segment

import (
	"sync/atomic"
	"unsafe"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

func (c *Control) word32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&c.mem[off])) }
func (c *Control) word64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&c.mem[off])) }

// Sleeping reports the engine's flag. The engine sets it, polls the rings once more, and blocks; the
// client publishes, and reads the flag. Both use sequentially consistent operations, so that at least
// one of the two sees the other's store (LAYOUT.md §8).
func (c *Control) Sleeping() bool { return atomic.LoadUint32(c.word32(offSleeping)) != 0 }

// SetSleeping sets the engine's flag. Only the engine calls it.
func (c *Control) SetSleeping(on bool) {
	var v uint32
	if on {
		v = 1
	}
	atomic.StoreUint32(c.word32(offSleeping), v)
}

// Retired returns the number of silent sends that the engine has taken over.
func (c *Control) Retired() uint64 { return atomic.LoadUint64(c.word64(offRetired)) }

// SetRetired sets that number. Only the engine calls it.
func (c *Control) SetRetired(n uint64) { atomic.StoreUint64(c.word64(offRetired), n) }

// Place returns the client's last Place (§8.1).
func (c *Control) Place() shm.Place { return shm.Place(atomic.LoadUint32(c.word32(offPlace))) }

// SetPlace sets the Place. Only the client calls it.
func (c *Control) SetPlace(p shm.Place) { atomic.StoreUint32(c.word32(offPlace), uint32(p)) }

// Looked returns when the client last polled its completions in a call that waits, or 0 if it does not
// publish that (§8.1).
func (c *Control) Looked() shm.Moment { return shm.Moment(atomic.LoadUint32(c.word32(offLooked))) }

// SetLooked sets that time. Only the client calls it.
func (c *Control) SetLooked(m shm.Moment) { atomic.StoreUint32(c.word32(offLooked), uint32(m)) }

// Acted returns when the client's application last did more than to repeat probes in vain, or 0 if the
// client does not publish that (§8.1).
func (c *Control) Acted() shm.Moment { return shm.Moment(atomic.LoadUint32(c.word32(offActed))) }

// SetActed sets that time. Only the client calls it.
func (c *Control) SetActed(m shm.Moment) { atomic.StoreUint32(c.word32(offActed), uint32(m)) }

// Tags returns the layout of the tags of the client's MPI, or 0 if it is not known (§8.2).
func (c *Control) Tags() uint32 { return atomic.LoadUint32(c.word32(offTags)) }

// SetTags sets that layout. Only the client calls it.
func (c *Control) SetTags(layout uint32) { atomic.StoreUint32(c.word32(offTags), layout) }

// Waiting returns the client's futex word, which is not 0 while a thread of the client may be blocked
// on it.
func (c *Control) Waiting() *uint32 { return c.word32(offWaiting) }
