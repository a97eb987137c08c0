package ioat

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

var _ copyeng.Channel = (*Channel)(nil)

// Options are the choices of a channel's user. The zero value is valid.
type Options struct {
	// Channel is the number of the channel in the device. Most devices have one.
	Channel int
	// Pending is the most copies that may be pending; 0 means 128.
	Pending int
	// Patience is how long a channel may make no progress before its status register is read;
	// 0 means 1 ms. Reading it takes about a microsecond.
	Patience time.Duration
	// Hang is how long a channel may make no progress before it is reset; 0 means 1 s.
	Hang time.Duration

	now func() time.Time // the clock; nil means time.Now
}

const (
	pendingDefault  = 128
	pendingMax      = 1 << 16
	patienceDefault = time.Millisecond
	hangDefault     = time.Second
	// recoveriesMax bounds the resets of a channel that has ended no copy between them.
	recoveriesMax = 3
	// budget is the bytes after which the processor makes no further copy in one call.
	budget = 1 << 20
	// emptyPolls is the number of polls without progress between two looks at the clock.
	emptyPolls = 32
)

// Stats counts what a channel has done.
type Stats struct {
	Copies, Bytes                 uint64 // all copies that have ended
	FallbackCopies, FallbackBytes uint64 // those of them that the processor made
	Descriptors                   uint64 // descriptors that were posted
	Held                          uint64 // copies that waited until earlier ones had ended
	Halts                         uint64 // times that the channel has halted
	Recoveries                    uint64 // resets after which the channel continued
	Rerung                        uint64 // doorbells that were rung once more
	Late                          uint64 // ends that the status register has told before the completion word
}

// job is a copy whose end has not been reported.
type job struct {
	dst, src []byte // of equal length
	token    uint64
	posted   uint64 // bytes of it that are in descriptors
	last     uint64 // number behind its last descriptor
	hold     bool   // it is started only when all earlier ones have ended
	cpu      bool   // the processor makes it, or has made it
}

// Channel copies by one channel of a device. Its methods are called on one goroutine.
type Channel struct {
	dev     Device
	base    uint32 // of the channel's registers
	version uint8
	express bool   // the device has the PCI Express capability, and thus configuration space from 256
	longest uint64 // bytes of a descriptor
	opt     Options
	mem     regions
	ring    *ring

	// The jobs are numbered. Number n is in jobs[n%len(jobs)]; those from tail to next have been
	// posted or made, and those from next to head wait.
	jobs             []job
	tail, next, head uint64
	near             hulls

	// Descriptors are numbered. The chain began with number first; those from done to posted
	// are the device's.
	first, done, posted uint64

	seen   uint64 // completion word when it was read last
	empty  int    // polls without progress
	since  time.Time
	rung   bool // the doorbell was rung again since the last progress
	failed int  // recoveries since the last progress
	dead   error
	shut   bool // the device is closed
	closed bool
	stats  Stats
}

// Open brings up a channel. If it returns an error, the caller closes the device.
func Open(dev Device, opt Options) (*Channel, error) {
	if opt.Pending == 0 {
		opt.Pending = pendingDefault
	}
	if opt.Patience == 0 {
		opt.Patience = patienceDefault
	}
	if opt.Hang == 0 {
		opt.Hang = hangDefault
	}
	if opt.now == nil {
		opt.now = time.Now
	}
	if opt.Pending < 1 || opt.Pending > pendingMax {
		return nil, fmt.Errorf("ioat: %d pending copies; 1 to %d are possible", opt.Pending, pendingMax)
	}
	c := &Channel{dev: dev, opt: opt, base: channelBase(opt.Channel), jobs: make([]job, opt.Pending)}
	if err := c.identify(); err != nil {
		return nil, err
	}
	var err error
	if c.ring, err = newRing(dev); err != nil {
		return nil, err
	}
	if err := c.bringUp(); err != nil {
		return nil, errors.Join(err, c.isolate(), c.dev.Free(c.ring.mem))
	}
	return c, nil
}

// Name returns ioat.
func (c *Channel) Name() string { return "ioat" }

// Err returns why the channel is dead, or nil if it is not.
func (c *Channel) Err() error { return c.dead }

// Stats returns the counters.
func (c *Channel) Stats() Stats { return c.stats }

// Pending returns the number of copies whose end is not reported.
func (c *Channel) Pending() int { return int(c.head - c.tail) }

// errClosed reports the use of a channel after Close.
var errClosed = errors.New("ioat: the channel is closed")

// Map makes memory accessible to the device, which pins it. Copies from and to other memory are
// made by the processor. mem must not move and must stay mapped until Unmap.
func (c *Channel) Map(mem []byte) error {
	switch {
	case c.closed:
		return errClosed
	case c.dead != nil:
		return c.dead
	}
	return c.mem.add(c.dev, mem)
}

// Unmap ends what Map with the same memory began. It fails while a copy of the memory is
// pending.
func (c *Channel) Unmap(mem []byte) error {
	for n := c.tail; n < c.head; n++ {
		if j := c.job(n); overlap(j.dst, mem) || overlap(j.src, mem) {
			return errors.New("ioat: a copy of the memory is pending")
		}
	}
	if c.dead != nil || c.closed {
		return nil // the device has no memory any more
	}
	r, err := c.mem.take(mem)
	if err != nil {
		return err
	}
	return c.dev.Unmap(r.mem, r.iova)
}

func (c *Channel) job(n uint64) *job { return &c.jobs[n%uint64(len(c.jobs))] }

// Submit starts a copy. If the processor has to make it, and no earlier copy is in the way, it
// has ended when Submit returns.
func (c *Channel) Submit(dst, src []byte, token uint64) bool {
	if c.closed || c.head-c.tail == uint64(len(c.jobs)) {
		return false
	}
	j := job{dst: dst[:len(src)], src: src, token: token}
	j.cpu = c.dead != nil || len(src) == 0 || overlap(j.dst, src) || !c.mem.cover(j.dst) || !c.mem.cover(src)
	j.hold = j.cpu || c.touches(&j)
	*c.job(c.head) = j
	c.head++
	c.near.add(&j)
	c.advance()
	if j.hold && c.next < c.head {
		c.stats.Held++
	}
	return true
}

// Poll reports the ends of copies, and gives waiting copies to the device.
func (c *Channel) Poll(done func(token uint64, err error)) (n int) {
	if c.head == c.tail {
		return 0
	}
	c.progress()
	c.advance()
	for end := c.next; c.tail < end; n++ { // copies that done submits may end at once: they wait for the next Poll
		j := c.job(c.tail)
		if !j.cpu && j.last > c.done {
			break
		}
		token := j.token
		c.stats.Copies++
		c.stats.Bytes += uint64(len(j.src))
		*j = job{}
		c.tail++
		if c.tail == c.head {
			c.near = hulls{}
		}
		done(token, nil)
	}
	return n
}

// advance starts waiting copies, in their order.
func (c *Channel) advance() {
	before, left := c.posted, budget
	for ; c.next < c.head; c.next++ {
		j := c.job(c.next)
		if j.hold && c.done != c.posted {
			break
		}
		if j.cpu {
			if left <= 0 {
				break
			}
			left -= len(j.src)
			c.byProcessor(j)
			continue
		}
		if !c.post(j) {
			break
		}
	}
	if c.posted != before {
		c.doorbell()
	}
}

// post writes descriptors for a copy. It returns false if the ring has no room for all of them.
func (c *Channel) post(j *job) bool {
	for all := uint64(len(j.src)); j.posted < all; c.posted++ {
		if c.posted-c.done == inFlightMax {
			return false
		}
		src, from := c.mem.translate(address(j.src[j.posted:]))
		dst, to := c.mem.translate(address(j.dst[j.posted:]))
		n := min(all-j.posted, c.longest, from, to)
		c.ring.put(c.posted, uint32(n), ctlCompletion, src, dst)
		c.stats.Descriptors++
		j.posted += n
		j.last = c.posted + 1
	}
	return true
}

// doorbell tells the device how many descriptors the chain has.
func (c *Channel) doorbell() {
	c.dev.Write16(c.base+regCount, uint16(c.posted-c.first))
}

func (c *Channel) byProcessor(j *job) {
	copy(j.dst, j.src)
	j.cpu = true
	if len(j.src) == 0 {
		return
	}
	c.stats.FallbackCopies++
	c.stats.FallbackBytes += uint64(len(j.src))
}

// Close ends the access of the device to memory, and closes the device. Pending copies are not
// completed.
func (c *Channel) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	var err error
	if c.dead == nil {
		err = c.isolate()
	}
	// Closing a device also ends its access to memory, so that the memory of the descriptors
	// can be freed even if isolate has failed.
	err = errors.Join(err, c.shutDevice(), c.dev.Free(c.ring.mem))
	clear(c.jobs)
	c.tail, c.next = c.head, c.head
	return err
}

func (c *Channel) shutDevice() error {
	if c.shut {
		return nil
	}
	c.shut = true
	return c.dev.Close()
}

// hulls bound the memory of the pending copies, so that most submissions need not look at each
// of them.
type hulls struct{ dst, src hull }

type hull struct{ from, to uintptr }

func (h *hull) add(mem []byte) {
	from := address(mem)
	to := from + uintptr(len(mem))
	if h.to == 0 {
		*h = hull{from, to}
		return
	}
	h.from, h.to = min(h.from, from), max(h.to, to)
}

func (h *hull) meets(mem []byte) bool {
	from := address(mem)
	return from < h.to && h.from < from+uintptr(len(mem))
}

func (h *hulls) add(j *job) {
	h.dst.add(j.dst)
	h.src.add(j.src)
}

// touches reports whether a copy must wait for a pending one: it writes memory that the
// pending one reads or writes, or reads memory that the pending one writes.
func (c *Channel) touches(j *job) bool {
	if !c.near.dst.meets(j.dst) && !c.near.src.meets(j.dst) && !c.near.dst.meets(j.src) {
		return false
	}
	for n := c.tail; n < c.head; n++ {
		if p := c.job(n); overlap(p.dst, j.dst) || overlap(p.src, j.dst) || overlap(p.dst, j.src) {
			return true
		}
	}
	return false
}

func overlap(a, b []byte) bool {
	x, y := address(a), address(b)
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
