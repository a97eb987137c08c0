package copyeng

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Bounds of Copies.
const (
	// Window is the most pieces that are pending in one channel: enough that it has work
	// during a turn of the engine, and few enough that a transfer that begins waits only some
	// tens of microseconds behind those of other sessions.
	Window = 8
	// failuresMax is the number of failed copies, without one that succeeds between them,
	// after which a channel is not used any more.
	failuresMax = 3
	// waitSpin is the number of polls in Wait before it yields the processor.
	waitSpin = 10_000
)

// Lane is one channel of Copies.
type Lane struct {
	Channel Channel
	// Alert is Helper.Alert. nil: the channel cannot ring, and the engine does not sleep while
	// copies are pending in it.
	Alert func(n int) (already bool)

	failures int  // since the last success
	dead     bool // it is not used any more
}

// Config is how Copies copies.
type Config struct {
	Kind string // what Open opens, as metrics and reports print it
	// Open opens the channels; bell is the doorbell of the engine. It is called at the first
	// large copy, on a goroutine of its own. nil: all copies are made inline.
	Open func(bell int) ([]*Lane, error)
	// Threshold is the size from which transfers are offloaded. 0: it is measured.
	Threshold uint64
}

// Copies distributes large transfers over channels, piece by piece. It counts them, and the
// copies that its users make inline. All methods are called on the engine's goroutine; those
// of a nil Copies do nothing.
type Copies struct {
	cfg       Config
	bell      int
	state     state
	opened    atomic.Pointer[opened] // what the goroutine of open has made, until the engine adopts it
	lanes     []*Lane
	threshold uint64
	pieces    []piece // the tokens of channels are indexes of it
	free      []uint16
	noteEnd   func(token uint64, err error) // done: a method value would be allocated in each Poll
	memory    []*mapped                     // memory of sessions
	maps      bool                          // the channels are Mappers
	waited    bool                          // Wait has noted ends, and the links may not have looked since
	stats     Stats
}

type state uint8

const (
	stateClosed  state = iota // no transfer was large enough yet
	stateOpening              // channels are opened and measured
	stateOpen                 // transfers are offloaded
	stateLost                 // copies are inline: there is no channel, or its measurements were worse
)

// Hold counts pending copies that have something in common: a transfer, or memory.
type Hold struct{ pending int }

// Pending reports whether such a copy is pending.
func (h *Hold) Pending() bool { return h.pending > 0 }

// Transfer is a large copy in pieces.
type Transfer struct {
	Hold
	lane   *Lane
	failed error // of the first piece that failed; nil: none did
	from   uint64
}

// Failed returns the lowest offset of a piece that failed, and the first failure; a nil
// error means that none failed. The caller copies again from there on, by other means, once
// no piece is pending.
func (t *Transfer) Failed() (from uint64, err error) { return t.from, t.failed }

// piece is a piece that is pending.
type piece struct {
	t      *Transfer
	memory *Hold
	at, n  uint64
}

// Stats counts copies.
type Stats struct {
	Kind      string   `json:"kind,omitempty"`      // what is or was offloaded to
	Inline    uint64   `json:"inline,omitempty"`    // bytes that the engine's thread has copied for remote operations
	Offloaded uint64   `json:"offloaded,omitempty"` // bytes that channels have copied or combined
	Fallbacks uint64   `json:"fallbacks,omitempty"` // pieces that failed, and were copied inline
	Pending   int      `json:"pending,omitempty"`   // pieces in channels now
	Mapped    uint64   `json:"mapped,omitempty"`    // bytes that were mapped for channels, which pins them
	Unmapped  uint64   `json:"unmapped,omitempty"`  // bytes that could not be mapped, and are copied by the processor
	MapCause  string   `json:"mapCause,omitempty"`  // why, of the first
	ChannelNS int64    `json:"channelNS,omitempty"` // CPU time of the channels' threads
	EngineNS  int64    `json:"engineNS,omitempty"`  // CPU time of the engine's thread
	Measured  Measured `json:"measured,omitzero"`
}

// New returns Copies.
func New(cfg Config) *Copies { return &Copies{cfg: cfg, bell: -1} }

// SetBell sets the doorbell of the engine, before the first transfer.
func (c *Copies) SetBell(fd int) {
	if c != nil {
		c.bell = fd
	}
}

// Takes reports whether a transfer of n bytes is to be offloaded. The first large transfers
// are not: they make the channels be opened and measured meanwhile.
func (c *Copies) Takes(n uint64) bool {
	if c == nil || c.cfg.Open == nil || n < leastBytes {
		return false
	}
	switch c.state {
	case stateClosed:
		c.state = stateOpening
		go c.open()
	case stateOpening:
		if o := c.opened.Swap(nil); o != nil {
			c.adopt(o)
		}
	}
	return c.state == stateOpen && n >= c.threshold
}

// TakesWork reports the same of work. All channels are of one kind.
func (c *Copies) TakesWork(n uint64) bool {
	if !c.Takes(n) {
		return false
	}
	_, works := c.lanes[0].Channel.(Worker)
	return works
}

// adopt uses the channels that were opened, if they are worth it.
func (c *Copies) adopt(o *opened) {
	c.stats.Measured = o.measured
	if c.state = stateLost; len(o.lanes) == 0 {
		return
	}
	c.state, c.lanes, c.threshold = stateOpen, o.lanes, o.threshold
	c.noteEnd = c.done
	_, c.maps = c.lanes[0].Channel.(Mapper)
	c.pieces = make([]piece, Window*len(o.lanes))
	for i := range c.pieces {
		c.free = append(c.free, uint16(i))
	}
}

// Room reports whether a channel takes another piece.
func (c *Copies) Room() bool {
	for _, l := range c.lanes {
		if l.room() {
			return true
		}
	}
	return false
}

func (l *Lane) room() bool { return !l.dead && l.Channel.Pending() < Window }

// Alive reports whether transfers are offloaded still. If not, those of which no piece is
// pending are continued inline.
func (c *Copies) Alive() bool { return c.state == stateOpen }

// Submit starts the piece of t at offset at, unless the channel of t is full. memory counts
// it, too, until it has ended. The pieces of a transfer are copied in order.
func (c *Copies) Submit(t *Transfer, memory *Hold, at uint64, dst, src []byte) bool {
	return c.submit(t, memory, at, nil, dst, src)
}

// Work is as Submit, for a piece of work. Preconditions: TakesWork.
func (c *Copies) Work(t *Transfer, memory *Hold, at uint64, do Work, dst, src []byte) bool {
	return c.submit(t, memory, at, do, dst, src)
}

func (c *Copies) submit(t *Transfer, memory *Hold, at uint64, do Work, dst, src []byte) bool {
	if t.lane == nil || t.lane.dead && t.pending == 0 {
		t.lane = c.idlest()
	}
	if l := t.lane; l == nil || !l.room() {
		return false
	}
	if c.maps {
		c.mapFor(dst)
		c.mapFor(src)
	}
	last := len(c.free) - 1
	i := c.free[last]
	if do == nil {
		if !t.lane.Channel.Submit(dst, src, uint64(i)) {
			return false
		}
	} else if !t.lane.Channel.(Worker).Work(do, dst, src, uint64(i)) {
		return false
	}
	c.free = c.free[:last]
	c.pieces[i] = piece{t, memory, at, uint64(len(src))}
	t.pending++
	memory.pending++
	return true
}

// idlest returns the channel with the fewest pieces, or nil if none is alive.
func (c *Copies) idlest() (best *Lane) {
	for _, l := range c.lanes {
		if !l.dead && (best == nil || l.Channel.Pending() < best.Channel.Pending()) {
			best = l
		}
	}
	return best
}

// Poll notes the pieces that have ended, and returns their number. It calls nothing outside
// of this package and the channels, so that it may be called from anywhere.
func (c *Copies) Poll() (n int) {
	for _, l := range c.lanes {
		if l.Channel.Pending() > 0 {
			n += l.Channel.Poll(c.noteEnd)
		}
	}
	return n
}

// done notes the end of a piece.
func (c *Copies) done(token uint64, err error) {
	p := c.pieces[token]
	c.pieces[token] = piece{}
	c.free = append(c.free, uint16(token))
	p.t.pending--
	p.memory.pending--
	l := p.t.lane
	if err == nil {
		l.failures = 0
		c.stats.Offloaded += p.n
		return
	}
	c.stats.Fallbacks++
	if p.t.failed == nil {
		p.t.failed, p.t.from = err, p.at
	}
	p.t.from = min(p.t.from, p.at)
	if l.failures++; l.failures < failuresMax {
		return
	}
	l.dead = true
	if c.idlest() == nil {
		c.state = stateLost
	}
}

// Pending reports whether pieces are pending.
func (c *Copies) Pending() bool {
	for _, l := range c.lanes {
		if l.Channel.Pending() > 0 {
			return true
		}
	}
	return false
}

// Wait waits until no copy is pending that h counts. It takes as long as the copies do, some
// tens of microseconds; a channel must end each, if need be with an error.
func (c *Copies) Wait(h *Hold) {
	for polls := 0; h.pending > 0; polls++ {
		c.waited = true
		if c.Poll() == 0 && polls > waitSpin {
			runtime.Gosched() // the channel may wait for this goroutine's turn,
			wake.Yield()      // or its thread for this processor
		}
	}
}

// Inline counts bytes that the caller has copied.
func (c *Copies) Inline(n uint64) {
	if c != nil {
		c.stats.Inline += n
	}
}

// Arm makes the channels ring the engine's doorbell when half of the pending pieces have
// ended, so that they stay busy while the engine wakes. It reports whether the engine must
// not sleep.
func (c *Copies) Arm() (busy bool) {
	if c == nil {
		return false
	}
	if c.waited {
		c.waited = false
		return true
	}
	for _, l := range c.lanes {
		n := l.Channel.Pending()
		if n > 0 && (l.Alert == nil || l.Alert((n+1)/2)) {
			return true
		}
	}
	return false
}

// Disarm ends what Arm began.
func (c *Copies) Disarm() {
	if c == nil {
		return
	}
	for _, l := range c.lanes {
		if l.Alert != nil {
			l.Alert(0)
		}
	}
}

// Stats returns the counters, with the CPU time of the calling thread, the engine's.
func (c *Copies) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	s := c.stats
	s.EngineNS = int64(ThreadCPU())
	if c.cfg.Open != nil {
		s.Kind = c.cfg.Kind
	}
	for _, l := range c.lanes {
		s.Pending += l.Channel.Pending()
		if h, is := l.Channel.(*Helper); is {
			s.ChannelNS += int64(h.CPU())
		}
	}
	return s
}

// Close waits until no channel accesses memory any more, and closes all. Nothing is pending
// afterwards, and nothing is offloaded.
func (c *Copies) Close() (err error) {
	if c == nil {
		return nil
	}
	if c.state == stateOpening {
		for o := c.opened.Swap(nil); ; o = c.opened.Swap(nil) {
			if o != nil {
				c.adopt(o)
				break
			}
			runtime.Gosched() // measureMax at most
			wake.Yield()
		}
	}
	for _, l := range c.lanes {
		err = errors.Join(err, l.Channel.Close())
	}
	for i := range c.pieces {
		if p := &c.pieces[i]; p.t != nil {
			p.t.pending--
			p.memory.pending--
		}
	}
	c.lanes, c.pieces, c.free, c.state, c.cfg.Open, c.memory = nil, nil, nil, stateLost, nil, nil
	return err
}
