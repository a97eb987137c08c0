package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// supply submits the chunks of a staged operation. Every second operation submits all at once,
// the most that a client may do; the others submit a few, and the next when one is returned.
func (a *app) supply(o *operation) {
	for o.staged < o.total && (o.seq%2 == 0 || o.chunks < chunksFew) {
		n := min(chunk, o.total-o.staged)
		addr := a.alloc(n)
		if o.send {
			copy(a.arena[addr:], o.payload[o.staged:o.staged+n])
		}
		d := shm.Descriptor{Op: shm.OpStage, Req: o.req, Class: shm.ClassArena}
		d.SetBody(uint64(addr), uint64(n), 0, 0)
		a.queue = append(a.queue, d)
		o.staged += n
		o.chunks++
	}
}

// chunkBack handles the return of a chunk of a staged operation.
func (a *app) chunkBack(o *operation) {
	o.chunks--
	a.supply(o)
}

// overwrite overwrites the memory of a send that has ended.
func (a *app) overwrite(o *operation) {
	switch o.class {
	case shm.ClassArena:
		fillByte(a.arena[o.addr:o.addr+len(o.payload)], 0xee)
	case shm.ClassSlab:
		fillByte(a.slab[o.addr:o.addr+len(o.payload)], 0xee)
	case shm.ClassExposed:
		fillByte(a.exposures.mem[o.offset:o.offset+len(o.payload)], 0xee)
	}
}

func fillByte(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// check compares a received message with the one that its sender's plan has.
func (a *app) check(o *operation, d *shm.Descriptor) error {
	want := o.payload
	if len(want) > o.room && o.want == nil {
		if d.Status != shm.StatusTruncated || int(d.Len()) != len(want) {
			return fmt.Errorf("request %d for %d of %d bytes ended with status %d, length %d", d.Req, o.room, len(want), d.Status, d.Len())
		}
		return nil
	}
	if d.Status != shm.StatusOK {
		return fmt.Errorf("request %d ended with status %d", d.Req, d.Status)
	}
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
	case shm.ClassExposed:
		var err error
		if got, err = a.gotExposed(o, int(d.Len())); err != nil {
			return err
		}
	}
	if o.want != nil { // wildcard: source and tag determine the message
		k := [2]uint64{uint64(d.Peer), d.Tag}
		w, ok := o.want[k]
		if !ok {
			return fmt.Errorf("message from %d tag %d was received twice or never sent", d.Peer, d.Tag)
		}
		delete(o.want, k)
		want = w
		o.from, o.fromTag = d.Peer, d.Tag
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("request %d from %d tag %d: %d bytes are not the %d that were sent", d.Req, d.Peer, d.Tag, len(got), len(want))
	}
	return a.checkType(d, want)
}

// typeOf returns the type of a message's elements; 0 means that its sender gives none.
func typeOf(payload []byte) shm.Status {
	sum := len(payload)
	for _, b := range payload[:min(len(payload), 4)] {
		sum += int(b)
	}
	return shm.Status(sum % (wire.ElemMax + 1))
}

// checkType checks that the receiver gets the type that the sender gave. A message that
// another pod has written into an offered receive has none.
func (a *app) checkType(d *shm.Descriptor, payload []byte) error {
	want, got := typeOf(payload), shm.Status(0)
	if d.Flags&shm.FlagTyped != 0 {
		got = shm.Status(d.Context)
	}
	offered := a.w.podOf[a.rank] != a.w.podOf[d.Peer] && (a.w.fair || a.w.rdv == rendezvous.Put || a.w.rdv == rendezvous.PutNR) // a fair job draws protocols
	if got != want && (got != 0 || !offered) {
		return fmt.Errorf("request %d from %d tag %d: elements of type %d, want %d", d.Req, d.Peer, d.Tag, got, want)
	}
	return nil
}

// checkOrder checks that wildcard receives, in the order in which they were posted, got the
// messages of each source in the order in which they were sent, the order of their tags.
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

// content returns the payload of a message, which differs from that of every other message.
func content(src, dst uint32, tag uint64, seq, n int) []byte {
	b := make([]byte, n+8)
	x := uint64(src)<<48 | uint64(dst)<<32 | tag<<16 | uint64(seq)
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	if n > 0 && seq%3 == 0 {
		b[n-1] = 0 // for PutNR: a zero as last byte is no sign of arrival
	}
	return b[:n]
}
