package dsa

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of the work of one call.
const (
	lineBytes    = 64      // a cache line
	pieceMax     = 2 << 20 // bytes of a descriptor, which bounds what is made resident at once
	batchMax     = 32      // descriptors of a write
	turnBytes    = 1 << 20 // bytes that a call copies, and about as many that it makes resident
	faultsMax    = 3       // page faults of a piece without progress
	errorsMax    = 8       // pieces in a row that end with an error
	refusalsMax  = 64      // refusals by a queue that has no descriptor of this channel
	watchEvery   = 64      // Polls without a completion between two looks at the clock
	suspectAfter = 20 * time.Millisecond
)

var (
	// ErrDraining says that the driver still waits for the device. The memory of pending copies
	// must not be used for anything else.
	ErrDraining = errors.New("the device may still write memory")
	// ErrMemory is the end of a copy of which a range is not backed by memory, such as a mapping
	// of a file that was truncated.
	ErrMemory = errors.New("memory of the copy is not accessible")
	errClosed = errors.New("the channel is closed")
)

// Stats counts since Open. A piece is a part of a copy for which a descriptor was made.
type Stats struct {
	Copies         uint64 // submitted
	DeviceBytes    uint64 // copied by the device
	ProcessorBytes uint64 // copied by the processor
	Descriptors    uint64 // taken by the queue
	Writes         uint64 // system calls that submitted
	Refusals       uint64 // writes that found the queue full
	Faults         uint64 // page faults
	Errors         uint64 // other statuses than success and page fault
	Fallbacks      uint64 // pieces, and copies after the end of the channel, left to the processor
}

// transfer is a submitted copy.
type transfer struct {
	dst, src []byte
	token    uint64
	// after is the number of copies that have to be copied before this one starts.
	after uint64
	// next is the first byte that was neither copied nor given a descriptor, end the first one
	// that the processor has copied behind those of the device.
	next, end int
	pieces    int // descriptors that have not ended
	started   bool
	processor bool // the processor copies it
	err       error
}

// slot is a descriptor with its completion record.
type slot struct {
	copy         uint64 // number of the copy
	off, n       int    // bytes that are not copied yet
	write        bool   // the last page fault was one of the destination
	faults       int    // page faults without progress
	faultsInAll  int
	faultsBudget int // bound of faultsInAll: two for each page
}

// Channel is a copyeng.Channel. Its state is owned by the engine's goroutine, except for
// closed, which the goroutine that closes the queue sets.
type Channel struct {
	queue                   Queue
	late, suspect, drainMax time.Duration
	piece, batch            int

	// Copies are numbered in the order of submission, and copy i is copies[i % len]:
	// reported <= copied <= fed <= submitted. Those before copied are copied, those before fed
	// have descriptors for all of their bytes.
	copies                           []transfer
	reported, copied, fed, submitted uint64

	// A slot is in one set, or in buffer: its descriptor waits for the next write.
	records                     records
	slots                       [slotsMax]slot
	free, flying, again, manual set
	buffer                      [batchMax * descriptorBytes]byte
	order                       [batchMax]uint8 // slots of the descriptors in buffer
	buffered                    int             // descriptors in buffer
	readable, writable          resident

	budget   int  // bytes that the processor may still copy in this call
	full     bool // refused, and nothing has completed since
	refusals int  // in a row
	errors   int  // in a row
	idle     int  // Polls without a completion
	since    time.Time
	// unreliable says that the device had reported an error before this channel used it.
	unreliable bool

	cause   error
	drained chan struct{} // closed when the queue is closed
	closed  bool          // by Close
	result  error         // of Queue.Close; written before drained is closed
	stats   Stats
}

// Name implements copyeng.Channel.
func (c *Channel) Name() string { return "dsa" }

// Pending implements copyeng.Channel.
func (c *Channel) Pending() int { return int(c.submitted - c.reported) }

// Stats returns the counters.
func (c *Channel) Stats() Stats { return c.stats }

// Err returns why the channel no longer uses its device, or nil. It wraps ErrDraining while there
// are descriptors that the device may still have.
func (c *Channel) Err() error {
	if c.cause != nil && c.flying != 0 {
		return fmt.Errorf("%w; %w", c.cause, ErrDraining)
	}
	return c.cause
}

// Submit implements copyeng.Channel. If the channel has ended, the processor copies.
func (c *Channel) Submit(dst, src []byte, token uint64) bool {
	if c.closed || c.Pending() == len(c.copies) {
		return false
	}
	t := c.at(c.submitted)
	*t = transfer{dst: dst[:len(src)], src: src, token: token}
	for i := c.copied; i < c.submitted; i++ {
		if p := c.at(i); overlap(t.dst, p.dst) || overlap(t.dst, p.src) || overlap(t.src, p.dst) {
			t.after = i + 1
		}
	}
	c.submitted++
	c.stats.Copies++
	c.newTurn()
	c.feed()
	if c.flying == 0 || c.buffered == c.batch {
		c.flush()
	}
	return true
}

// Poll implements copyeng.Channel.
func (c *Channel) Poll(done func(token uint64, err error)) int {
	if c.closed {
		return 0
	}
	c.newTurn()
	c.reap()
	c.finishByProcessor()
	c.feed()
	c.flush()
	n := 0
	// Copies that done submits are reported by the next Poll.
	for last := c.copied; c.reported < last; n++ {
		t := c.at(c.reported)
		token, err := t.token, t.err
		*t = transfer{}
		c.reported++
		done(token, err)
	}
	c.watch()
	return n
}

// newTurn begins a call, of which the work is bounded.
func (c *Channel) newTurn() {
	c.budget = turnBytes
	c.readable.bytes, c.writable.bytes = 0, 0
}

// mayTouch reports whether memory may be made resident in this call: new pages cost as much as a
// copy.
func (c *Channel) mayTouch() bool { return c.readable.bytes+c.writable.bytes < turnBytes }

// at returns a copy by its number.
func (c *Channel) at(number uint64) *transfer { return &c.copies[number%uint64(len(c.copies))] }

// advance counts the copies that are copied.
func (c *Channel) advance() {
	for c.copied < c.fed && c.at(c.copied).pieces == 0 {
		c.copied++
	}
}
