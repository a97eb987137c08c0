package dsamodel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Fault is what happens to a descriptor. The zero value carries it out.
type Fault struct {
	// Status is written to the completion record. 0: success.
	Status uint8
	// After is the number of bytes that are copied before a page fault, or before Break.
	After uint32
	// Claim, if not 0, is reported as the number of copied bytes instead of After.
	Claim uint32
	// Backward copies from the end, and says so.
	Backward bool
	// Delay is the time before the descriptor is carried out.
	Delay time.Duration
	// Lost descriptors are carried out when the queue is drained, and without a record.
	Lost bool
	// Break ends the device in the middle of the descriptor.
	Break bool
}

// Options say what queue is modelled.
type Options struct {
	// Size is the number of entries of the queue.
	Size int
	// Dedicated queues lose what exceeds Size; shared ones are full.
	Dedicated bool
	// Window is the number of descriptors of which any may be the next. 0: 1, in order.
	Window int
	// TransferMax is the most bytes of a descriptor. 0: no bound.
	TransferMax uint32
	// SendBuffer is the size of the socket's buffer. 0: the system's.
	SendBuffer int
	// Pages reports a fault where a page is not resident.
	Pages bool
	// Seed decides the order in a window.
	Seed uint64
	// Fault returns what happens to descriptor n, counted from 0 in the order of arrival. nil:
	// nothing. It is called on the device's goroutine.
	Fault func(n int, d Descriptor) Fault
	// Hold, if not nil, makes Drain wait until it is closed.
	Hold chan struct{}
}

// Descriptor is a descriptor, as far as a copy has one.
type Descriptor struct {
	Flags, Size                     uint32
	Opcode                          uint8
	Completion, Source, Destination uint64
}

// Layout, as in the kernel's header linux/idxd.h.
const (
	descriptorSize = 64
	recordAlign    = 32
	opMemmove      = 0x03
	crav, rcr      = 0x0004, 0x0008 // completion record address valid; request completion record
	success        = 0x01
	pageFault      = 0x03
	badOpcode      = 0x10
	badFlags       = 0x11
	badSize        = 0x13
	badRecord      = 0x1b
	faultOfWrite   = 0x80
)

// job is a descriptor in the queue.
type job struct {
	Descriptor
	fault Fault
	due   time.Time
}

// Counts are what a device has seen.
type Counts struct {
	Descriptors int      // accepted
	Packets     int      // writes
	Lost        int      // beyond the size of a dedicated queue
	Mistakes    []string // what no driver may submit, at most 16
}

// Device is the model.
type Device struct {
	options   Options
	fd, users int // the device's end of the pair, and the other one
	done      chan struct{}
	random    *rand.Rand
	queue     []job
	arrived   int
	broken    bool
	closing   bool

	mu     sync.Mutex
	paused bool
	still  bool // the device has seen paused
	counts Counts
}

// New starts a device. The second result is the file descriptor to write descriptors to, which
// does not block; the caller closes it, after Drain.
func New(options Options) (*Device, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("dsamodel: %w", err)
	}
	if options.SendBuffer > 0 {
		if err := unix.SetsockoptInt(pair[1], unix.SOL_SOCKET, unix.SO_SNDBUF, options.SendBuffer); err != nil {
			return nil, -1, fmt.Errorf("dsamodel: %w", err)
		}
	}
	options.Window = max(options.Window, 1)
	d := &Device{
		options: options, fd: pair[0], users: pair[1], done: make(chan struct{}),
		random: rand.New(rand.NewPCG(options.Seed, 0)),
	}
	go d.run()
	return d, pair[1], nil
}

// Drain waits until no descriptor is left, as the driver does when the device file is closed.
func (d *Device) Drain() {
	_ = unix.Shutdown(d.users, unix.SHUT_WR) // it fails if the device has closed its end
	<-d.done
}

// Pause stops the device from taking descriptors, or lets it go on. A pause holds when Pause returns.
func (d *Device) Pause(on bool) {
	for still := !on; ; time.Sleep(time.Millisecond) {
		d.mu.Lock()
		d.paused = on
		still = still || d.still
		d.mu.Unlock()
		if still {
			return
		}
	}
}

// ReportError makes the device report an error by poll.
func (d *Device) ReportError() error {
	_, err := unix.Write(d.fd, []byte{0})
	return err
}

// Counts returns what the device has seen so far.
func (d *Device) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts
	c.Mistakes = append([]string(nil), c.Mistakes...)
	return c
}

// run is the device's goroutine.
func (d *Device) run() {
	defer close(d.done)
	defer func() { _ = unix.Close(d.fd) }()
	buffer := make([]byte, 64<<10)
	for !d.broken && (!d.closing || len(d.queue) > 0) {
		d.take(buffer)
		d.step()
	}
	if d.options.Hold != nil {
		<-d.options.Hold
	}
}

// take reads what has arrived, and waits if there is nothing to do.
func (d *Device) take(buffer []byte) {
	d.mu.Lock()
	paused := d.paused
	d.still = paused
	d.mu.Unlock()
	full := !d.options.Dedicated && len(d.queue) >= d.options.Size
	// What the socket has taken is in the queue, so that it is read before the end of a drain.
	if d.closing || (paused || full) && !d.hungUp() {
		return
	}
	if d.next() < 0 {
		// Jobs that are not due, or none: 1 ms bounds the delay of a late job.
		timeout := 1
		if len(d.queue) == 0 {
			timeout = 20
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, timeout)
	}
	n, err := unix.Read(d.fd, buffer)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	case err != nil || n == 0:
		d.closing = true
	default:
		d.arrive(buffer[:n])
	}
}

// hungUp reports whether the other end is drained. It waits a little if there is nothing to do.
func (d *Device) hungUp() bool {
	timeout := 0
	if d.next() < 0 {
		timeout = 1
	}
	p := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, timeout)
	return err == nil && n > 0
}

// arrive puts descriptors into the queue.
func (d *Device) arrive(b []byte) {
	d.mu.Lock()
	d.counts.Packets++
	d.mu.Unlock()
	if len(b)%descriptorSize != 0 {
		d.mistake("a write of %d bytes", len(b))
	}
	for ; len(b) >= descriptorSize; b = b[descriptorSize:] {
		if d.options.Dedicated && len(d.queue) >= d.options.Size {
			d.mu.Lock()
			d.counts.Lost++
			d.mu.Unlock()
			continue
		}
		j := job{Descriptor: decode(b)}
		d.check(b[:descriptorSize], &j.Descriptor)
		if d.options.Fault != nil {
			j.fault = d.options.Fault(d.arrived, j.Descriptor)
		}
		if j.fault.Delay > 0 {
			j.due = time.Now().Add(j.fault.Delay)
		}
		d.arrived++
		d.queue = append(d.queue, j)
		d.mu.Lock()
		d.counts.Descriptors++
		d.mu.Unlock()
	}
}

func decode(b []byte) Descriptor {
	le := binary.LittleEndian
	operation := le.Uint32(b[4:])
	return Descriptor{
		Flags: operation & 0xffffff, Opcode: uint8(operation >> 24), Completion: le.Uint64(b[8:]),
		Source: le.Uint64(b[16:]), Destination: le.Uint64(b[24:]), Size: le.Uint32(b[32:]),
	}
}

// next returns the place in the queue of a job of the window that is due, or -1.
func (d *Device) next() int {
	n := min(len(d.queue), d.options.Window)
	for range n {
		i := d.random.IntN(n)
		j := &d.queue[i]
		if d.closing || !j.fault.Lost && (j.due.IsZero() || !time.Now().Before(j.due)) {
			return i
		}
	}
	for i := range d.queue {
		j := &d.queue[i]
		if d.closing || !j.fault.Lost && (j.due.IsZero() || !time.Now().Before(j.due)) {
			return i
		}
	}
	return -1
}

// step carries one job out.
func (d *Device) step() {
	i := d.next()
	if i < 0 {
		return
	}
	j := d.queue[i]
	d.execute(&j)
	d.queue = append(d.queue[:i], d.queue[i+1:]...)
}

// status returns the status that the device writes for a descriptor itself.
func (d *Device) status(j *job) uint8 {
	switch {
	case j.Opcode != opMemmove:
		return badOpcode
	case j.Flags != crav|rcr:
		return badFlags
	case j.Size == 0, d.options.TransferMax > 0 && j.Size > d.options.TransferMax:
		return badSize
	case j.Completion%recordAlign != 0:
		return badRecord
	}
	return success
}

// mistake notes what no driver may do.
func (d *Device) mistake(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.counts.Mistakes) < 16 {
		d.counts.Mistakes = append(d.counts.Mistakes, fmt.Sprintf(format, args...))
	}
}
