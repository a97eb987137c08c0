package segment

import (
	"sync/atomic"
	"unsafe"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

func (c *Control) word32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&c.mem[off])) }
func (c *Control) word64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&c.mem[off])) }

// Sleeping is the engine's flag. The engine sets it, then looks at the rings
// once more, then blocks; the client publishes, then looks at the flag. Both
// use sequentially consistent operations, so that one of the two sees the
// other (LAYOUT.md §8).
func (c *Control) Sleeping() bool { return atomic.LoadUint32(c.word32(offSleeping)) != 0 }

// SetSleeping is for the engine only.
func (c *Control) SetSleeping(on bool) {
	var v uint32
	if on {
		v = 1
	}
	atomic.StoreUint32(c.word32(offSleeping), v)
}

// Retired counts the silent sends that the engine has taken over.
func (c *Control) Retired() uint64 { return atomic.LoadUint64(c.word64(offRetired)) }

// SetRetired is for the engine only.
func (c *Control) SetRetired(n uint64) { atomic.StoreUint64(c.word64(offRetired), n) }

// Place is what the client said last (§8.1).
func (c *Control) Place() shm.Place { return shm.Place(atomic.LoadUint32(c.word32(offPlace))) }

// SetPlace is for the client only.
func (c *Control) SetPlace(p shm.Place) { atomic.StoreUint32(c.word32(offPlace), uint32(p)) }

// Looked is when the client, inside a waiting call, has last looked at its completions;
// 0: it does not say (§8.1).
func (c *Control) Looked() shm.Moment { return shm.Moment(atomic.LoadUint32(c.word32(offLooked))) }

// SetLooked is for the client only.
func (c *Control) SetLooked(m shm.Moment) { atomic.StoreUint32(c.word32(offLooked), uint32(m)) }

// Tags is how the client's MPI makes its tags, 0: not known (§8.2).
func (c *Control) Tags() uint32 { return atomic.LoadUint32(c.word32(offTags)) }

// SetTags is for the client only.
func (c *Control) SetTags(layout uint32) { atomic.StoreUint32(c.word32(offTags), layout) }

// Waiting is the client's futex word: 1 while the client may be blocked on it.
func (c *Control) Waiting() *uint32 { return c.word32(offWaiting) }
