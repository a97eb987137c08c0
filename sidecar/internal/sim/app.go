package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

type linkPeer = link.Peer

// app is a simulated application. It posts its operations in order, a few at a
// time, and checks every message that it gets.
type app struct {
	w        *world
	rank     uint32
	session  *session.Session
	submit   *ring.Producer
	complete *ring.Consumer
	slab     []byte
	arena    []byte
	slabNext int
	next     int // bump allocation of the arena
	ops      []*operation
	posted   int
	open     int
	failed   bool
	queue    []shm.Descriptor // stage descriptors that found the ring full
}

// operation is one send or receive.
type operation struct {
	req     uint32
	send    bool
	peer    uint32 // of a receive: AnySource for a wildcard
	tag     uint64
	ignore  uint64
	class   shm.Class
	flags   uint8
	seq     int    // position among the messages of its pair (and tag)
	payload []byte // what is sent, or what must arrive
	want    map[[2]uint64][]byte
	addr    int // arena or slab place of the buffer
	room    int
	staged  int // bytes of chunks supplied
	got     []byte
	ended   bool
	from    uint32 // source and tag of what a wildcard got
	fromTag uint64
}

const (
	arenaBytes = 6 << 20
	chunk      = 16 << 10
	burst      = 4 // fewer operations are posted in one step
)

func newApp(w *world, rank uint32) (*app, error) {
	g := segment.Geometry{SubmitEntries: 16, CompleteEntries: 16, SlabBytes: 512 << 10}
	c, err := segment.Format(aligned(g.Bytes()), g, rank)
	if err != nil {
		return nil, err
	}
	a := &app{w: w, rank: rank, slab: c.Slab(), arena: aligned(arenaBytes)}
	if a.session, err = session.New(c, a.arena, rank); err != nil {
		return nil, err
	}
	mem, n := c.SubmitRing()
	if a.submit, err = ring.NewProducer(mem, n); err == nil {
		mem, n = c.CompleteRing()
		a.complete, err = ring.NewConsumer(mem, n)
	}
	return a, err
}

// take gives the next n bytes of the arena.
func (a *app) take(n int) int {
	off := a.next
	a.next += (n + 63) &^ 63
	if a.next > len(a.arena) {
		panic("the simulated application's arena is too small for its plan")
	}
	return off
}

func (a *app) done() bool {
	return (a.posted == len(a.ops) || a.failed) && a.open == 0 && len(a.queue) == 0
}

func (a *app) state() string {
	text := fmt.Sprintf("%d of %d posted, %d open:", a.posted, len(a.ops), a.open)
	for _, o := range a.ops[:a.posted] {
		if !o.ended {
			text += fmt.Sprintf(" [send=%v peer=%d tag=%d class=%d bytes=%d]", o.send, int32(o.peer), o.tag, o.class, len(o.payload))
		}
	}
	return text
}

// step takes completions and posts what is next.
func (a *app) step() error {
	var d shm.Descriptor
	for a.complete.Pop(&d) {
		if err := a.handle(&d); err != nil {
			return fmt.Errorf("rank %d: %w", a.rank, err)
		}
	}
	a.complete.Release()
	for len(a.queue) > 0 {
		if ok, err := a.submit.Push(&a.queue[0]); !ok || err != nil {
			return err
		}
		a.queue = a.queue[1:]
	}
	// However many are open: a program that waits for a send before it posts
	// its receive may stand still by its own fault.
	for range a.w.rng.IntN(burst) {
		if a.posted == len(a.ops) || a.failed {
			break
		}
		o := a.ops[a.posted]
		d := a.describe(o)
		if ok, err := a.submit.Push(&d); !ok || err != nil {
			return err
		}
		a.posted++
		if o.flags&shm.FlagSilent != 0 {
			o.ended = true
			continue
		}
		a.open++
		if o.send && o.class == shm.ClassStaged {
			a.supply(o, len(o.payload))
		}
	}
	return nil
}

// describe makes the descriptor of an operation and gives it its memory.
func (a *app) describe(o *operation) shm.Descriptor {
	d := shm.Descriptor{Op: shm.OpRecv, Req: o.req, Peer: o.peer, Tag: o.tag, Class: o.class, Flags: o.flags}
	n := len(o.payload)
	if !o.send {
		n = o.room
	}
	d.SetBody(0, uint64(n), o.ignore, 0)
	if o.send {
		d.Op = shm.OpSend
	}
	switch o.class {
	case shm.ClassInline:
		if o.send {
			d.SetInline(o.payload)
		} else {
			d.InlineLen = shm.InlineMax
		}
		return d
	case shm.ClassArena:
		o.addr = a.take(n)
		if o.send {
			copy(a.arena[o.addr:], o.payload)
		}
	case shm.ClassSlab:
		o.addr = a.slabNext
		a.slabNext += (n + 63) &^ 63
		if o.send {
			copy(a.slab[o.addr:], o.payload)
		}
	}
	d.SetBody(uint64(o.addr), uint64(n), o.ignore, 0)
	return d
}

// supply submits the chunks of a staged operation: all at once, which is the
// most that a client may do.
func (a *app) supply(o *operation, total int) {
	for o.staged < total {
		n := min(chunk, total-o.staged)
		addr := a.take(n)
		if o.send {
			copy(a.arena[addr:], o.payload[o.staged:o.staged+n])
		}
		d := shm.Descriptor{Op: shm.OpStage, Req: o.req, Class: shm.ClassArena}
		d.SetBody(uint64(addr), uint64(n), 0, 0)
		a.queue = append(a.queue, d)
		o.staged += n
	}
}

func (a *app) handle(d *shm.Descriptor) error {
	if d.Op == shm.OpFailed {
		a.failed = true
		return nil
	}
	o := a.ops[d.Req]
	switch d.Op {
	case shm.OpMatched:
		a.supply(o, int(d.Len()))
	case shm.OpStaged:
		if !o.send && d.Len() > 0 {
			if int(d.Aux()) != len(o.got) {
				return fmt.Errorf("chunk at %d, want %d", d.Aux(), len(o.got))
			}
			o.got = append(o.got, a.arena[d.Addr():d.Addr()+d.Len()]...)
		}
	case shm.OpDone:
		if o.ended {
			return fmt.Errorf("request %d ended twice", d.Req)
		}
		o.ended = true
		a.open--
		if a.failed || d.Status == shm.StatusAborted || d.Status == shm.StatusPeerFailed {
			if a.w.victim < 0 {
				return fmt.Errorf("request %d ended with status %d and nothing has failed", d.Req, d.Status)
			}
			return nil
		}
		if d.Status != shm.StatusOK {
			return fmt.Errorf("request %d ended with status %d", d.Req, d.Status)
		}
		if !o.send {
			return a.check(o, d)
		}
		// The memory is the application's again: scribble over it, so that
		// whoever still needs it is found out. (In a failed job nobody does.)
		a.scribble(o)
	}
	return nil
}

func (a *app) scribble(o *operation) {
	switch o.class {
	case shm.ClassArena:
		fillByte(a.arena[o.addr:o.addr+len(o.payload)], 0xee)
	case shm.ClassSlab:
		fillByte(a.slab[o.addr:o.addr+len(o.payload)], 0xee)
	}
}

func fillByte(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// check compares a message with what its sender's plan says.
func (a *app) check(o *operation, d *shm.Descriptor) error {
	var got []byte
	switch o.class {
	case shm.ClassInline:
		got = d.Inline()
	case shm.ClassArena:
		got = a.arena[o.addr : o.addr+int(d.Len())]
	case shm.ClassSlab:
		got = a.slab[o.addr : o.addr+int(d.Len())]
	case shm.ClassStaged:
		got = o.got
	}
	want := o.payload
	if o.want != nil { // wildcard: source and tag say which message it has to be
		k := [2]uint64{uint64(d.Peer), d.Tag}
		w, ok := o.want[k]
		if !ok {
			return fmt.Errorf("message from %d tag %d came twice or was never sent", d.Peer, d.Tag)
		}
		delete(o.want, k)
		want = w
		o.from, o.fromTag = d.Peer, d.Tag
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("request %d from %d tag %d: %d bytes are not the %d that were sent", d.Req, d.Peer, d.Tag, len(got), len(want))
	}
	return nil
}

// checkOrder: wildcard receives, in the order of their posting, got the messages
// of each source in the order of their sending, which is that of their tags.
func (a *app) checkOrder() error {
	last := map[uint32]uint64{}
	for _, o := range a.ops {
		if o.want == nil {
			continue
		}
		if t, seen := last[o.from]; seen && o.fromTag <= t {
			return fmt.Errorf("rank %d: message %d of rank %d was overtaken by message %d", a.rank, o.fromTag, o.from, t)
		}
		last[o.from] = o.fromTag
	}
	return nil
}

// content is the payload of one message: different for every message.
func content(src, dst uint32, tag uint64, seq, n int) []byte {
	b := make([]byte, n+8)
	x := uint64(src)<<48 | uint64(dst)<<32 | tag<<16 | uint64(seq)
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b[:n]
}
