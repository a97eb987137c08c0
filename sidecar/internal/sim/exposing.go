package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// Applications that register memory of their own, and send from it and receive into it
// while it is exposed. They end exposures at any time; an access after that is found. Some
// cheat: they end a registration before its exposure, or give wrong keys and addresses.

const (
	exposeNumbers = 3
	exposeBytes   = 1 << 20 // of an application
	exposeLeast   = 32 << 10
	exposeMost    = 400 << 10
	exposePace    = 10   // factor by which such applications are slower, so that connections are made before the messages
	unwritten     = 0xaa // byte of a receive buffer before the message
)

// exposedMemory holds the exposed memory of an application.
type exposedMemory struct {
	rng     *rand.Rand
	context *context
	cheats  bool
	mem     []byte
	next    int
	list    [exposeNumbers]*exposure
	ended   []*exposure
	keys    uint32
	begun   bool // the sidecar has answered a first time: operations are posted from now on
	slow    bool // operations are posted slowly for another reason
}

// exposure is a piece of memory that is exposed, was exposed, or will be.
type exposure struct {
	*piece
	number uint32
	key    uint32
	used   int // bytes that are allocated to messages
	offset int // offset in the application's memory
	open   int // messages that use it
	state  exposeState
}

type exposeState uint8

const (
	exposeAsked exposeState = iota // the sidecar has not answered
	exposeThere
	exposeEnds // the sidecar has not answered
)

var exposeMemory = sync.Pool{New: func() any { b := make([]byte, exposeBytes); return &b }}

// mayExpose gives an application a context of a device, if its sidecar lends memory.
func (a *app) mayExpose(p *port) {
	if !p.lends {
		return
	}
	x := &exposedMemory{rng: rand.New(rand.NewPCG(a.w.seed, 100+uint64(a.rank))), context: &context{net: p.net, pieces: map[uint32]*piece{}}}
	x.cheats, x.mem = p.net.cheats && x.rng.IntN(2) == 0, *exposeMemory.Get().(*[]byte)
	x.slow, a.exposures = a.w.early, x
	a.session.SetContext(x.context)
}

func (x *exposedMemory) release() {
	if x == nil {
		return
	}
	clear(x.mem[:x.next])
	exposeMemory.Put(&x.mem)
}

// planExposed marks some messages that use exposed memory if there is some.
func (a *app) planExposed() {
	if a.exposures == nil {
		return
	}
	offers := !a.w.exposing && (a.w.rdv == rendezvous.Put || a.w.rdv == rendezvous.PutNR) // only memory of the arena can be offered
	for _, o := range a.ops {
		if (o.class == shm.ClassStaged || o.class == shm.ClassArena && !offers) && a.exposures.rng.IntN(3) > 0 {
			o.lends = true
		}
	}
}

// expose exposes another piece at random times, or ends an exposure.
func (a *app) expose() {
	x := a.exposures
	gone := a.w.leaving != nil && a.w.leaving[a.w.podOf[a.rank]]
	if x == nil || a.failed || gone || x.rng.IntN(3) > 0 {
		return
	}
	number := uint32(x.rng.IntN(exposeNumbers))
	switch e := x.list[number]; {
	case e == nil:
		if a.posted < len(a.ops) {
			a.exposeMore(number)
		}
	case e.state != exposeThere:
	case x.cheats && x.rng.IntN(16) == 0:
		e.over, e.early = true, true
	case e.used > 0 && x.rng.IntN(16) == 0, x.rng.IntN(200) == 0:
		e.state = exposeEnds
		d := shm.Descriptor{Op: shm.OpUnexpose, Req: a.exposeRequest() + number}
		d.SetBody(0, 0, uint64(number), 0)
		a.queue = append(a.queue, d)
	}
}

// exposeRequest returns the request number of the first exposure; others follow it.
func (a *app) exposeRequest() uint32 { return uint32(len(a.ops)) }

// paced reports whether an application that exposes memory must not post an operation now.
func (x *exposedMemory) paced() bool {
	return x != nil && (!x.begun || !x.slow && x.rng.IntN(exposePace) > 0)
}

func (a *app) exposeMore(number uint32) {
	x := a.exposures
	n := exposeLeast + x.rng.IntN(exposeMost)
	if n > len(x.mem)-x.next {
		return
	}
	x.keys++
	e := &exposure{piece: &piece{mem: x.mem[x.next:][:n:n], addr: x.rng.Uint64N(1 << 40)}, number: number, key: x.keys, offset: x.next}
	x.next += n
	x.list[number], x.context.pieces[e.key] = e, e.piece
	m := link.Lent{Addr: e.addr, Len: uint64(n), Lkey: e.key, Rkey: e.key}
	if x.cheats {
		switch x.rng.IntN(8) {
		case 0:
			m.Lkey, m.Rkey = 1000, 1000
		case 1:
			m.Addr += uint64(n)
		}
	}
	d := shm.Descriptor{Op: shm.OpExpose, Req: a.exposeRequest() + number}
	d.SetBody(m.Addr, m.Len, uint64(number), uint64(m.Lkey)|uint64(m.Rkey)<<32)
	a.queue = append(a.queue, d)
}

// exposeEnded handles the sidecar's answer to an exposure or its end.
func (a *app) exposeEnded(d *shm.Descriptor) error {
	x, number := a.exposures, d.Req-a.exposeRequest()
	if x == nil || d.Op != shm.OpDone || number >= exposeNumbers || x.list[number] == nil || x.list[number].state == exposeThere {
		return fmt.Errorf("op %d of request %d, which is not open", d.Op, d.Req)
	}
	x.begun = true
	e, failed := x.list[number], a.failed || d.Status == shm.StatusAborted
	if !failed && d.Status != shm.StatusOK && (e.state != exposeAsked || d.Status != shm.StatusUnsupported) {
		return fmt.Errorf("exposure %d, in state %d, is answered with status %d", number, e.state, d.Status)
	}
	if e.state == exposeAsked && d.Status == shm.StatusOK {
		e.state = exposeThere
		return nil
	}
	if !failed && e.open > 0 {
		return fmt.Errorf("exposure %d has ended, and %d messages that use it have not", number, e.open)
	}
	if e.state == exposeEnds {
		a.w.net.lent.Ended++
	}
	e.over, e.early = true, e.early || failed
	x.list[number] = nil
	fillByte(e.mem, 0xee)
	x.ended = append(x.ended, e)
	return nil
}

// idle reports whether no answer of the sidecar is pending.
func (x *exposedMemory) idle() bool {
	if x == nil {
		return true
	}
	for _, e := range x.list {
		if e != nil && e.state != exposeThere {
			return false
		}
	}
	return true
}

// placeExposed allocates a message in exposed memory, if there is room.
func (a *app) placeExposed(o *operation, n int) {
	x := a.exposures
	for i := range x.list {
		e := x.list[(i+int(o.req))%exposeNumbers]
		if e == nil || e.state != exposeThere || n == 0 || n > len(e.mem)-e.used {
			continue
		}
		o.class, o.exposure, o.offset = shm.ClassExposed, e, e.offset+e.used
		o.addr = int(e.number)<<shm.ExposureShift | e.used
		e.used, e.open = min(e.used+n+x.rng.IntN(64), len(e.mem)), e.open+1
		if o.send {
			copy(x.mem[o.offset:], o.payload)
		} else {
			fillByte(x.mem[o.offset:][:n], unwritten)
		}
		return
	}
	if o.class == shm.ClassArena && x.rng.IntN(2) == 0 {
		return
	}
	o.class = shm.ClassStaged
}

// gotExposed returns a message that was received into exposed memory, by the device or in
// chunks.
func (a *app) gotExposed(o *operation, n int) ([]byte, error) {
	if len(o.got) > 0 {
		return o.got, nil
	}
	mem := a.exposures.mem[o.offset:][:o.room]
	if len(mem) > n && bytes.Count(mem[n:], []byte{unwritten}) != len(mem)-n {
		return nil, fmt.Errorf("exposed memory is written after the end of a message of %d bytes", n)
	}
	return mem[:n], nil
}

// checkExposed checks that memory was not written after its exposure ended.
func (a *app) checkExposed() error {
	if a.exposures == nil {
		return nil
	}
	for _, e := range a.exposures.ended {
		if !bytes.Equal(e.mem[1:], e.mem[:len(e.mem)-1]) || e.mem[0] != 0xee {
			return fmt.Errorf("rank %d: memory was written after its exposure had ended", a.rank)
		}
	}
	return nil
}

// checkContext checks that an application's context was closed exactly once.
func (a *app) checkContext() error {
	if a.exposures == nil || a.exposures.context.closed == 1 {
		return nil
	}
	return fmt.Errorf("the context of rank %d was closed %d times", a.rank, a.exposures.context.closed)
}

// exposedAttacks are attacks with descriptors about exposed memory.
var exposedAttacks = [][]shm.Descriptor{
	alone(aboutExposure(shm.OpExpose, 4096, shm.MaxExposures)),
	alone(aboutExposure(shm.OpExpose, 0, exposeNumbers)),
	alone(aboutExposure(shm.OpUnexpose, 0, exposeNumbers)),
	alone(aboutExposure(shm.OpSend, 4096, 0)),
	alone(aboutExposure(shm.OpRecv, 4096, 0)),
	alone(aboutExposure(shm.OpUnexpose, 0, 1<<40)),
}

func aboutExposure(op shm.Op, n, number uint64) shm.Descriptor {
	d := shm.Descriptor{Op: op, Req: shm.MaxRequests - 2, Class: shm.ClassExposed}
	d.SetBody(exposeNumbers<<shm.ExposureShift, n, number, 0)
	return d
}
