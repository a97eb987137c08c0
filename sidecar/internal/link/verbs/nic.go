package verbs

import "errors"

// nic is an open device: one port, one protection domain, one completion queue.
// device_unsafe.go implements it over libibverbs. Only register, deregister, newPair and
// the methods connect, fail, receive and destroy of its pairs may be called on other
// goroutines than the engine's.
type nic interface {
	// portInfo returns the port.
	portInfo() Port
	// inlineMax returns how many bytes of a request are copied when it is posted.
	inlineMax() int
	// register registers memory at the address iova, which is congruent to the memory's
	// modulo the page size. Peers may access it if remote is true.
	register(mem []byte, iova uint64, remote bool) (region, error)
	deregister(region) error
	// queueDepth returns how many completions may wait to be polled.
	queueDepth() int
	// newShared makes a queue of receives for several pairs. errNoShared means that the
	// device has none.
	newShared(slots int) (sharedQueue, error)
	// newPair makes a queue pair that can accept receives, from a shared queue if one is
	// given. tag is in the upper half of the ids of its completions; may is what its peer
	// may do with registered memory.
	newPair(tag uint32, shared sharedQueue, may rights) (pair, error)
	// poll removes completions from the queue, as many as fit into the slice.
	poll(into []completion) (int, error)
	// arm asks for an event at the next completion.
	arm() error
	// events returns descriptors that are readable when there is a completion after arm,
	// or a fault. acknowledge removes the events of completions.
	events() []int
	acknowledge()
	// fault returns the next event that the device reports by itself.
	fault() (fault, bool)
	close() error
}

// rights are what the peer of a queue pair may do with memory that is registered for
// peers in its protection domain, if it knows a key.
type rights uint8

// Rights of a peer.
const (
	mayRead rights = 1 << iota
	mayWrite
)

// pair is a queue pair.
type pair interface {
	number() uint32
	// connect connects it to the remote pair, ready to send and to receive.
	connect(local, remote *offer) error
	// post posts requests, in order, in one call.
	post([]request) error
	receiver // of a pair that has its own receives
	// inOrder reports whether the device says that writes through the pair are placed in
	// order.
	inOrder() bool
	// fail moves it to the error state, as a fault would.
	fail() error
	destroy() error
}

// sharedQueue is a queue of receives for several pairs.
type sharedQueue interface {
	receiver
	destroy() error
}

// errNoShared means that a device cannot share receives between queue pairs.
var errNoShared = errors.New("the device shares no receives between queue pairs")

// region is registered memory.
type region struct {
	handle     uintptr
	addr       uint64 // address of the first byte, for the device
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

// request is one work request. C reads it in place: calls.h has the same layout.
type request struct {
	id      uint64
	addr    uint64 // local range, followed by a second one at addr2
	addr2   uint64
	remote  uint64
	length  uint32
	length2 uint32
	lkey    uint32
	lkey2   uint32
	rkey    uint32
	op      uint32
	flags   uint32
	imm     uint32 // immediate data of opSend and opWriteNotify
}

// Statuses of a completion.
const (
	statusOK uint32 = iota
	statusAccess
	statusFlushed
	statusBroken
)

// completion is the completion of a request or receive. C writes it in place: calls.h has
// the same layout.
type completion struct {
	id     uint64
	status uint32
	raw    uint32 // the device's own status
	op     uint32 // undefined unless status is statusOK
	length uint32 // bytes received, of a receive
	imm    uint32
	pair   uint32 // number of the queue pair
}

// fault is an event that a device reports by itself.
type fault struct {
	what   string
	pair   uint32 // number of the queue pair, unless port, device or note is set
	port   bool   // the port is down: connections end, others may be made later
	device bool   // the device is lost: nothing works any more
	last   bool   // the pair has failed, and takes no more of the shared receives
	note   bool   // of no consequence; worth a line in the log if what is not empty
}

// An id consists of the tag of a queue pair, the bit idReceive, and a number of 24 bits.
const (
	idReceive = 1 << 31
	numberMax = 1<<24 - 1
)

// idShared is the id of shared receives without the slot: no connection has the tag
// tagIndex.
const idShared = uint64(tagIndex)<<32 | idReceive

func idOf(tag, number uint32) uint64 { return uint64(tag)<<32 | uint64(number&numberMax) }
