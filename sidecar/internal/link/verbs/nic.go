package verbs

import "errors"

// nic is an open device: one port, one protection domain, one completion queue.
// Over libibverbs it is in device_unsafe.go. All but register, deregister, newPair and
// its pair's connect, fail, receive and destroy are for the engine's goroutine.
type nic interface {
	about() Port
	// inlineMax is how many bytes a request may have that are copied when it is
	// posted.
	inlineMax() int
	// register makes memory known to the device at the address iova, which is
	// congruent to the memory's modulo the page size. Peers may reach it if
	// remote says so.
	register(mem []byte, iova uint64, remote bool) (region, error)
	deregister(region) error
	// queueDepth is how many completions may wait to be polled.
	queueDepth() int
	// newShared makes a queue of receives for several pairs; errNoShared: the device
	// has none.
	newShared(slots int) (sharedQueue, error)
	// newPair makes a queue pair that may take receives, from a shared queue if one
	// is given. tag is in the upper half of the ids of its completions; may is what
	// its peer may do with registered memory by it.
	newPair(tag uint32, shared sharedQueue, may rights) (pair, error)
	// poll takes completions out, as many as fit.
	poll(into []completion) (int, error)
	// arm asks for an event at the next completion.
	arm() error
	// events are descriptors that are readable when there is a completion after
	// arm, or a fault. acknowledge takes the former's news out.
	events() []int
	acknowledge()
	// fault takes out what the device tells without being asked.
	fault() (fault, bool)
	close() error
}

// rights are what the peer of a queue pair may do by it with memory that is registered for
// peers in its protection domain, beside knowing a key.
type rights uint8

// Rights.
const (
	mayRead rights = 1 << iota
	mayWrite
)

// pair is a queue pair.
type pair interface {
	number() uint32
	// connect makes it ready to send to and receive from the remote one.
	connect(local, remote *offer) error
	// post hands over requests, in order, in one call.
	post([]request) error
	receiver // of a pair that has its own
	// inOrder reports whether the device says that writes to it are placed in order.
	inOrder() bool
	// fail moves it to the error state, as a fault would.
	fail() error
	destroy() error
}

// sharedQueue is a queue of receives of several pairs.
type sharedQueue interface {
	receiver
	destroy() error
}

// errNoShared says that a device cannot share receives between queue pairs.
var errNoShared = errors.New("the device shares no receives between queue pairs")

// region is memory that the device knows.
type region struct {
	handle     uintptr
	addr       uint64 // of its first byte, for the device
	lkey, rkey uint32
}

// Operations of a request, and kinds of completions.
const (
	opSend uint32 = iota
	opWrite
	opWriteNotify
	opRead
	opReceive
	opReceiveNotify // a peer's opWriteNotify
)

// Flags of a request.
const (
	flagSignal uint32 = 1 << iota
	flagInline
)

// request is one work request. It is read by C as it lies in memory.
type request struct {
	id      uint64
	addr    uint64 // local range, and a second one behind it
	addr2   uint64
	remote  uint64
	length  uint32
	length2 uint32
	lkey    uint32
	lkey2   uint32
	rkey    uint32
	op      uint32
	flags   uint32
	imm     uint32 // of opSend and opWriteNotify
}

// Statuses of a completion.
const (
	statusOK uint32 = iota
	statusAccess
	statusFlushed
	statusBroken
)

// completion is one end of a request or receive. It is written by C.
type completion struct {
	id     uint64
	status uint32
	raw    uint32 // the device's own status
	op     uint32 // not known when status is not OK
	length uint32 // of a receive
	imm    uint32
	pair   uint32 // number of the queue pair
}

// fault is what a device tells without being asked.
type fault struct {
	what   string
	pair   uint32 // number of the queue pair, if fatal is not
	port   bool   // the port is down: connections end, others may be made later
	device bool   // the device is gone: nothing works any more
	last   bool   // the pair, which has failed, takes no more of the shared receives
	note   bool   // only worth a line in the log, or not even that where what is empty
}

// An id is the tag of a queue pair, then this, then a number of 24 bits.
const (
	idReceive = 1 << 31
	numberMax = 1<<24 - 1
)

// idShared are the ids of shared receives, less the slot: no connection has that tag.
const idShared = uint64(tagIndex)<<32 | idReceive

func idOf(tag, number uint32) uint64 { return uint64(tag)<<32 | uint64(number&numberMax) }
