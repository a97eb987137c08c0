package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// chunk is a piece of the application's memory that carries a part of a staged
// message: full on its way out, empty on its way in (L§5.1).
type chunk struct {
	ref   link.Ref
	class shm.Class
	addr  uint64
	off   uint64 // in the message
	done  uint64 // bytes emitted or filled
	acks  int    // frames that refer to it
}

// chunkQueue holds the chunks of one request in message order.
type chunkQueue struct {
	list []chunk
	sent int // chunks wholly emitted, of a send
}

// ChunkLimit bounds the chunks that one request may have with the engine.
const ChunkLimit = 256

func (q *chunkQueue) unsent() int { return len(q.list) - q.sent }

// at returns the chunk that holds n bytes at off of the message.
func (q *chunkQueue) at(off, n uint64) *chunk {
	for i := range q.list {
		k := &q.list[i]
		if off >= k.off && off+n <= k.off+k.ref.Len {
			return k
		}
	}
	return nil
}

func (q *chunkQueue) pop() chunk {
	k := q.list[0]
	q.list = q.list[:copy(q.list, q.list[1:])]
	return k
}

// runsOut reports whether less than half of the supplied bytes of a message of total bytes has
// still to be sent, and more has to be supplied. The application may have no other memory for
// the rest than the chunks that the receiver has to acknowledge.
func (q *chunkQueue) runsOut(total uint64) bool {
	last := &q.list[len(q.list)-1]
	return 2*q.unsent() < len(q.list) && last.off+last.ref.Len < total
}

// submitStage takes the next chunk of a staged request.
func (rm *Room) submitStage(s *session, d *shm.Descriptor) error {
	ref, err := s.Memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	if int(d.Req) >= s.Requests() || d.Len() == 0 {
		return fmt.Errorf("chunk of %d bytes for request %d", d.Len(), d.Req)
	}
	k := chunk{ref: ref, class: d.Class, addr: d.Addr()}
	switch q := s.Request(d.Req); q.Kind {
	case ranks.RequestSend:
		st := rm.sends.Get(q.ID)
		if st == nil || !st.staged {
			return fmt.Errorf("chunk for request %d, which is not staged", d.Req)
		}
		if err := s.Charge(memory.ChunkCost); err != nil {
			return err
		}
		return rm.stageSend(q.ID, st, k)
	case ranks.RequestRecv:
		r := rm.recvs.Get(q.ID)
		if r == nil || r.class != shm.ClassStaged || !r.asked {
			return fmt.Errorf("chunk for request %d, which waits for none", d.Req)
		}
		if err := s.Charge(memory.ChunkCost); err != nil {
			return err
		}
		return rm.stageRecv(q.ID, r, k)
	}
	if s.Request(d.Req).Kind != ranks.RequestFree {
		return fmt.Errorf("chunk for request %d, which is not staged", d.Req)
	}
	return nil // ended meanwhile: the application will see OpDone
}

func (q *chunkQueue) add(k chunk, limit uint64) error {
	if n := len(q.list); n > 0 {
		k.off = q.list[n-1].off + q.list[n-1].ref.Len
	}
	switch {
	case len(q.list) >= ChunkLimit:
		return fmt.Errorf("more than %d chunks of one request", ChunkLimit)
	case k.off+k.ref.Len > limit:
		return fmt.Errorf("chunks beyond the message's %d bytes", limit)
	}
	q.list = append(q.list, k)
	return nil
}

func (tx *sender) stageSend(id uint64, st *send, k chunk) error {
	k.off = st.move.Sent()
	if err := st.chunks.add(k, st.total); err != nil {
		return err
	}
	tx.startTransfer(tx.peerOf(st.dst), id, st)
	return nil
}

// requestSendChunks notifies the application, once, that the receiver waits for a staged send
// of which it has supplied nothing. An application that is short of memory keeps it for such
// sends.
func (tx *sender) requestSendChunks(st *send) {
	s := tx.sessions[st.owner.session]
	if st.wanted || st.move.Sent() > 0 || s == nil || s.Left() {
		return
	}
	st.wanted = true
	d := shm.Descriptor{Op: shm.OpMatched, Req: st.owner.req, Peer: st.dst, Tag: st.tag}
	d.SetBody(0, st.total, 0, 0)
	tx.ranks.Publish(s.ID(), &d)
}

// emitChunk emits the next fragment of a staged send. It reports whether there are more now. A
// fragment never spans chunks.
func (tx *sender) emitChunk(p *peer, id uint64, st *send, n uint64) bool {
	if st.chunks.unsent() == 0 {
		return false
	}
	k := &st.chunks.list[st.chunks.sent]
	n = min(n, k.ref.Len-k.done)
	f, a := tx.channel.Emit(p.Peer, wire.Data)
	f.Head.A, f.Head.B, f.Head.Length = st.move.Remote, st.move.Sent(), uint32(n)
	f.Payload = k.ref.Slice(k.done, n)
	*a = after{Kind: afterChunk, ID: id, Session: st.owner.session, Hold: true}
	tx.ranks.Hold(st.owner.session)
	p.Out().Charge(n)
	k.done += n
	k.acks++
	st.move.Advance(n)
	if k.done == k.ref.Len {
		st.chunks.sent++
		if st.chunks.runsOut(st.total) && !p.tells(f) {
			f.Head.Flags |= wire.FlagAckNow
		}
	}
	return st.move.Open() && st.chunks.unsent() > 0
}

// chunkSent handles the acknowledgement of a fragment of a staged send. After the last
// fragment of a chunk, the chunk is given back.
func (tx *sender) chunkSent(id uint64, f *link.Frame) {
	st := tx.sends.Get(id)
	if st == nil {
		return
	}
	k := &st.chunks.list[0] // frames are acknowledged in order
	k.acks--
	if k.acks > 0 || k.done < k.ref.Len {
		return
	}
	done := st.chunks.pop()
	st.chunks.sent--
	tx.giveBack(st.owner, done, done.ref.Len)
}

// giveBack returns a chunk's memory to the application.
func (x *common) giveBack(o owner, k chunk, n uint64) {
	s := x.sessions[o.session]
	if s == nil {
		return
	}
	if s.Refund(memory.ChunkCost); s.Left() {
		return
	}
	d := shm.Descriptor{Op: shm.OpStaged, Req: o.req, Class: k.class}
	d.SetBody(k.addr, n, k.off, 0)
	x.ranks.Publish(o.session, &d)
}

// returnChunks gives back the chunks of a send that ends early.
func (tx *sender) returnChunks(st *send) {
	for len(st.chunks.list) > 0 {
		k := st.chunks.pop()
		tx.giveBack(st.owner, k, k.ref.Len)
	}
	st.chunks.list = nil // the state is used again by other sends
}

// returnRecvChunks gives back the chunks of a receive that ends early.
func (rx *receiver) returnRecvChunks(r *recv) {
	for len(r.chunks.list) > 0 {
		rx.giveBack(r.owner, r.chunks.pop(), 0)
	}
	r.chunks.list = nil // as above
}

// requestChunks reports the match of a staged receive. The application then supplies chunks.
func (rx *receiver) requestChunks(r *recv) {
	r.asked = true
	s := rx.sessions[r.owner.session]
	if s == nil || s.Left() {
		return
	}
	d := shm.Descriptor{Op: shm.OpMatched, Req: r.owner.req, Peer: r.source, Tag: r.tag}
	d.SetBody(0, r.length, 0, 0)
	rx.ranks.Publish(s.ID(), &d)
}

// stageRecv takes an empty chunk. It is filled from the pool at once if the message was eager; else
// its bytes are requested from the sender.
func (rx *receiver) stageRecv(id uint64, r *recv, k chunk) error {
	k.off = r.given
	if err := r.chunks.add(k, r.want); err != nil {
		return err
	}
	r.given += k.ref.Len
	if !r.parked {
		rx.emitPull(&rx.peers[r.peer], r, id, &wire.PullBody{Offset: k.off, Bytes: k.ref.Len}, false)
		return nil
	}
	copy(rx.ports.Bytes(k.ref), rx.ports.Bytes(r.eager.Slice(k.off, k.ref.Len)))
	whole := r.move.Placed(k.ref.Len).Do == rendezvous.Finish
	rx.chunkFilled(r)
	if whole {
		rx.endRecv(id, r, shm.StatusOK)
	}
	return nil
}

// chunkFilled gives the first chunk back if it is full.
func (rx *receiver) chunkFilled(r *recv) {
	if k := &r.chunks.list[0]; r.move.Got == k.off+k.ref.Len {
		full := r.chunks.pop()
		rx.giveBack(r.owner, full, full.ref.Len)
	}
}
