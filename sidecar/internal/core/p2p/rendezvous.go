package p2p

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// Package rendezvous decides the steps of a rendezvous, without knowing requests or peers. The steps are
// carried out here.

func (x *common) path(p *peer) rendezvous.Path {
	return rendezvous.Path{Protocol: x.cfg.Rendezvous, Caps: p.Caps()}
}

// sendRendezvous announces a message and keeps it until the receiver has it
// (P§5.2).
func (tx *sender) sendRendezvous(s *session, p *peer, o *outgoing) {
	st, id := tx.sends.Alloc()
	*st = send{
		owner: o.owner, src: o.src, dst: o.dst, context: o.context, tag: o.tag, total: o.total,
		payload: o.payload, staged: o.class == shm.ClassStaged, reply: o.reply,
		move: rendezvous.Source{Total: o.total, Mem: o.payload},
	}
	copy(st.inline[:], o.inline)
	if o.lent.of != nil {
		st.lent = o.lent.of
		st.lent.uses++
		if p.Caps().Lent {
			st.move.Mem, st.move.Lent = o.lent.at, true
		}
	}
	if st.move.Mem.Len > 0 {
		st.held = true
		tx.ranks.Hold(s.ID())
	}
	step := st.move.Start(tx.path(p))
	if step.Do == rendezvous.Register {
		step = tx.registerSource(p, st, step.Mem)
	}
	step.Offer.Data, step.Offer.About = o.data.Word(), o.about
	f, _ := tx.channel.Emit(p.Peer, wire.RTS)
	tx.channel.Queued(o.src)
	o.header(&f.Head)
	f.Head.A, f.Head.B = o.total, id
	f.Head.Length = uint32(step.Offer.Encode(f.Inline[:]))
	tx.setState(s, o.owner, ranks.RequestSend, id)
	switch {
	case o.owner.coll != 0:
		tx.colls.Opened(o.owner.coll, MessageID{ID: id, Send: true})
	case o.owner.silent:
		s.keepSilent(id, st)
	}
}

func (tx *sender) registerSource(p *peer, st *send, mem link.Ref) rendezvous.Step {
	key, err := tx.ports.Register(p.ID(), mem)
	if err != nil {
		tx.stats.Unregistered++
		return st.move.Unregistered()
	}
	var last uint8
	if tx.path(p).Polls() {
		last = tx.lastByte(mem)[0]
	}
	return st.move.Registered(key, last)
}

// onRTS matches an announcement.
func (rx *receiver) onRTS(p *peer, h *wire.Header, payload []byte) error {
	var body wire.RTSBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	e, err := rx.hostedBy(p, h)
	if err != nil {
		return err
	}
	if rx.rejects(e, h) {
		rx.refuseMessage(&message{head: *h, peer: p.ID()}, rx.job.Refusal())
		return nil
	}
	if h.A <= EagerLimit {
		rx.channel.Announced(p.Peer, charge(h.A))
	}
	data := ranks.Carried(h, uint64(body.Data)|uint64(body.About)<<32)
	if r, id := rx.arrive(e, h); r != nil {
		rx.bind(r, p, h, h.A, data)
		rx.startRendezvous(r, id, h.B, &body)
		return nil
	}
	if err := p.announces(); err != nil {
		return err
	}
	m, _ := rx.park(p, e, h, h.A, link.Ref{}, data)
	m.offer = body
	return nil
}

// startRendezvous fetches the payload of a matched message from its sender.
func (rx *receiver) startRendezvous(r *recv, id, remote uint64, offer *wire.RTSBody) {
	p := &rx.peers[r.peer]
	r.move = rendezvous.Target{Remote: remote, Total: r.length, Want: r.want, Staged: r.class == shm.ClassStaged}
	if r.class != shm.ClassInline && r.class != shm.ClassStaged {
		r.move.Mem = r.buf.Slice(0, r.want)
	}
	if r.lent.of != nil && p.Caps().Lent {
		r.move.Mem = r.lent.at.Slice(0, r.want)
	}
	if p.over() {
		rx.endRecv(id, r, rx.job.Lost(p.ID()))
		return
	}
	rx.moveTarget(p, r, id, r.move.Start(rx.path(p), offer))
}

// moveTarget carries out the steps of the receiving end of a rendezvous.
func (rx *receiver) moveTarget(p *peer, r *recv, id uint64, s rendezvous.Step) {
	for {
		switch s.Do {
		case rendezvous.Register:
			if key, was := r.move.Part(); was {
				rx.endKey(p.ID(), key, true)
			}
			key, err := rx.registerTarget(p, s.Mem)
			if errors.Is(err, link.ErrLater) {
				r.move.Later()
				if rx.retrying { // a registration that is too large together with others is the first of the next turn
					rx.later.Unshift(id)
				} else {
					rx.later.Push(id)
				}
				return
			}
			if err != nil {
				rx.stats.Unregistered++
				s = r.move.Unregistered()
				continue
			}
			s = r.move.Registered(key)
			continue
		case rendezvous.Read:
			if !rx.read(p, r, id, s) {
				s = r.move.Refused(rx.path(p))
				continue
			}
			rx.stats.Get.Add(r.want)
		case rendezvous.Ask:
			rx.emitPull(p, r, id, &s.Pull, s.More)
		case rendezvous.Supply:
			rx.requestChunks(r)
		case rendezvous.Finish:
			rx.sendFin(p, r.move.Remote, shm.StatusOK)
			rx.finishRendezvous(r, id)
		case rendezvous.End:
			rx.finishRendezvous(r, id)
		}
		return
	}
}

// registerTarget registers a receive's memory, or a part of it. If other receives wait for
// their registration, it waits behind them: a turn begins with the frames that have arrived,
// so that the waiting receives would otherwise never be the first.
func (rx *receiver) registerTarget(p *peer, mem link.Ref) (link.Key, error) {
	if rx.later.Len() > 0 && !rx.retrying {
		return link.Key{}, link.ErrLater
	}
	return rx.ports.Register(p.ID(), mem)
}

// Register continues the receives whose memory was not registered in an earlier turn, as far as the
// link registers it in this one.
func (rx *receiver) Register() {
	rx.retrying = true
	defer func() { rx.retrying = false }()
	for waiting := rx.later.Len(); rx.later.Len() == waiting && waiting > 0; waiting-- {
		id := rx.later.Pop()
		r := rx.recvs.Get(id)
		if r == nil {
			continue
		}
		if step, ok := r.move.Retry(); ok {
			rx.moveTarget(&rx.peers[r.peer], r, id, step)
		}
	}
}

// lastByte returns the last byte of ref.
func (x *common) lastByte(ref link.Ref) []byte { return x.ports.Bytes(ref.Slice(ref.Len-1, 1)) }

// PollReads ends the receives whose last byte has arrived, and returns their number.
func (rx *receiver) PollReads() (came int) {
	for i := len(rx.polled) - 1; i >= 0; i-- {
		id := rx.polled[i]
		r := rx.recvs.Get(id)
		if r != nil {
			if r.move.Polling() && !r.move.Arrived(rx.lastByte(r.move.Mem)[0]) {
				continue
			}
			if r.offered && r.move.Polling() {
				rx.finishOffered(r, id)
			} else {
				rx.moveTarget(&rx.peers[r.peer], r, id, r.move.Polled())
			}
			came++
		}
		last := len(rx.polled) - 1
		rx.polled[i] = rx.polled[last]
		rx.polled = rx.polled[:last]
	}
	return came
}

// read starts a remote read. It reports false if the link refuses it.
func (rx *receiver) read(p *peer, r *recv, id uint64, s rendezvous.Step) bool {
	if s.Poll {
		rx.lastByte(s.Mem)[0] = s.Guard
	}
	token := rx.remote(remoteMessage, r.owner.session, id)
	if err := rx.ports.Read(p.ID(), token, s.Mem, s.Key); err != nil {
		rx.cancelRemote(token)
		rx.stats.Unregistered++
		return false
	}
	r.token = token
	r.move.Started()
	rx.remotes.Get(token).other = r.move.Remote
	if s.Poll {
		rx.polled = append(rx.polled, id)
	}
	return true
}

func (rx *receiver) emitPull(p *peer, r *recv, id uint64, body *wire.PullBody, more bool) {
	f, _ := rx.channel.Emit(p.Peer, wire.Pull)
	if more {
		f.Head.Flags |= wire.FlagMore
	}
	f.Head.A, f.Head.B = r.move.Remote, id
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
}

// onPull serves the receiver of a rendezvous (P§5.3).
func (tx *sender) onPull(p *peer, h *wire.Header, payload []byte) error {
	var body wire.PullBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	st := tx.sends.Get(h.A)
	if st == nil { // it has ended here meanwhile with its session
		if err := tx.sends.Ended(h.A, "pull from"); err != nil {
			return err
		}
		tx.sendEnded(p, h.B)
		return nil
	}
	if st.sync || tx.peerOf(st.dst) != p {
		return fmt.Errorf("%w: pull of an unknown send", link.ErrProtocol)
	}
	step, err := st.move.Pulled(p.Caps(), h.B, &body)
	if err != nil {
		return err
	}
	more := h.Flags&wire.FlagMore != 0
	if step.Do == rendezvous.Write && tx.write(p, st, h.A, step, body.Offset, more) {
		tx.stats.Put.Part(body.Bytes, !more)
		return nil
	}
	tx.stats.Stream.Part(body.Bytes, !more)
	tx.startTransfer(p, h.A, st)
	return nil
}

// write starts the remote write of the requested bytes, at off. It reports false if the link
// refuses it.
func (tx *sender) write(p *peer, st *send, id uint64, s rendezvous.Step, off uint64, more bool) bool {
	token := tx.remote(remotePut, st.owner.session, id)
	op := tx.remotes.Get(token)
	op.other, op.rank, op.off, op.more = st.move.Remote, st.dst, off, more
	if err := tx.ports.Write(p.ID(), token, s.Mem, s.Key, st.move.Remote); err != nil {
		tx.cancelRemote(token)
		return false
	}
	st.move.Writing()
	return true
}

// placeData returns where a fragment goes in the receive's buffer.
func (rx *receiver) placeData(p *peer, h *wire.Header) (ref link.Ref, err error) {
	r := rx.recvs.Get(h.A)
	if r == nil || r.peer != p.ID() || !r.matched {
		if r == nil {
			// it has ended here meanwhile with its session
			return rx.discard(p, h), rx.recvs.Ended(h.A, "data for")
		}
		return ref, fmt.Errorf("%w: data for an unknown receive", link.ErrProtocol)
	}
	n := uint64(h.Length)
	if err := r.move.Accept(h.B, n); err != nil {
		return ref, err
	}
	if r.class == shm.ClassInline {
		// The receive's own memory is not in a region: the payload goes through the pool.
		ref, ok := rx.pool.passing(n)
		if !ok {
			return ref, ErrGranted
		}
		return rx.target(p, placeData, h.A, ref, nil), nil
	}
	if r.class == shm.ClassStaged {
		k := r.chunks.at(h.B, n)
		if k == nil {
			return ref, fmt.Errorf("%w: data of %d bytes at %d, which was not asked for", link.ErrProtocol, n, h.B)
		}
		return rx.target(p, placeData, h.A, k.ref.Slice(h.B-k.off, n), r.endpoint.session), nil
	}
	return rx.target(p, placeData, h.A, r.buf.Slice(h.B, n), r.endpoint.session), nil
}

// dataPlaced counts a fragment; the last one ends the receive.
func (rx *receiver) dataPlaced(p *peer, id uint64, h *wire.Header, at link.Ref) error {
	r := rx.recvs.Get(id)
	if at.Region == RegionPool {
		if r != nil {
			copy(r.inline[h.B:], rx.ports.Bytes(at))
		}
		rx.pool.passed(at)
	}
	if r == nil {
		return nil
	}
	step := r.move.Placed(uint64(h.Length))
	if r.class == shm.ClassStaged {
		rx.chunkFilled(r)
	}
	rx.moveTarget(p, r, id, step)
	return nil
}

// finishRendezvous completes the receive.
func (rx *receiver) finishRendezvous(r *recv, id uint64) {
	rx.endRecv(id, r, shm.StatusOK)
}

// onFin ends a rendezvous at its sender.
func (tx *sender) onFin(p *peer, h *wire.Header) error {
	st := tx.sends.Get(h.A)
	if st == nil {
		return tx.sends.Ended(h.A, "fin for")
	}
	if st.sync || tx.peerOf(st.dst) != p {
		return fmt.Errorf("%w: fin for an unknown send", link.ErrProtocol)
	}
	tx.endSend(h.A, st, shm.Status(h.B), true)
	return nil
}

// onEnded ends a receive whose sender has ended before it was asked (P§5.3).
func (rx *receiver) onEnded(p *peer, h *wire.Header) error {
	r := rx.recvs.Get(h.A)
	if r == nil {
		return rx.recvs.Ended(h.A, "the end of")
	}
	if r.peer != p.ID() || !r.matched || r.move.Remote == 0 || h.B == 0 {
		return fmt.Errorf("%w: the end of a send that was not requested", link.ErrProtocol)
	}
	rx.endRecv(h.A, r, shm.Status(h.B))
	return nil
}

// onWritten handles the end of a remote write into a receive: the link reports it, or a frame of the
// sender where the link does not notify.
func (rx *receiver) onWritten(p *peer, id uint64, whole bool, h *wire.Header) error {
	r := rx.recvs.Get(id)
	if r == nil {
		if err := rx.recvs.Ended(id, "a write for"); err != nil {
			return err
		}
		if !whole {
			return rx.endUnwritten(p, h)
		}
		return nil
	}
	if r.offered && rx.peerOf(r.pattern.Source) == p {
		rx.onPut(p, r, id, whole, h)
		return nil
	}
	if r.peer != p.ID() || !r.matched {
		return fmt.Errorf("%w: notification of a write that was not requested", link.ErrProtocol)
	}
	var step rendezvous.Step
	var err error
	if whole {
		step, err = r.move.Written()
	} else {
		step, err = r.move.Unwritten(h.B - 1)
	}
	if err != nil {
		return err
	}
	rx.moveTarget(p, r, id, step)
	return nil
}

// endUnwritten answers for a receive that had ended when a write to it failed. The receive had
// the message, or its rank had left before and had refused the message. A sender to which the
// receive was offered was not notified of the refusal: it is notified now.
func (rx *receiver) endUnwritten(p *peer, h *wire.Header) error {
	status := shm.StatusOK
	if int(h.Dst) >= len(rx.endpoints) || rx.endpoints[h.Dst] == nil {
		return fmt.Errorf("%w: a write for rank %d, which is not in this pod", link.ErrProtocol, h.Dst)
	}
	if rx.unmet[h.A] || rx.job.Failed() {
		status = rx.job.Refusal()
	}
	rx.sendFin(p, h.Tag, status)
	return nil
}

// Foreign is a remote operation of another room that has ended: a write to a ring, or an access
// to a window.
type Foreign struct {
	Ring    bool
	Session ranks.SessionID // session that an access holds until Done
	ID      uint64
	View    uint64 // view of the window, of an access
	Rank    uint32 // rank of an access, the rank that has started it
}

// RemoteDone handles the end of a remote read or write. is reports that it belongs to another room.
func (rm *Room) RemoteDone(id link.Peer, token uint64, err error) (f Foreign, is bool) {
	op := rm.remotes.Get(token)
	if op == nil {
		return f, false
	}
	done := *op
	rm.remotes.Release(token)
	p := &rm.peers[id]
	if err != nil {
		rm.stats.RemoteErrors++
	}
	switch done.kind {
	case remoteRing, remoteAccess:
		return Foreign{Ring: done.kind == remoteRing, Session: done.session, ID: done.id, View: done.other, Rank: done.rank}, true
	case remoteMessage:
		if r := rm.recvs.Get(done.id); r != nil {
			rm.moveTarget(p, r, done.id, r.move.Read(err))
		} else if done.refuse {
			rm.sendFin(p, done.other, shm.StatusPeerLeft)
		}
	case remotePut:
		rm.writeDone(p, &done, err)
	case remoteOffered:
		rm.putDone(p, token, &done, err)
	}
	rm.ranks.Unhold(done.session)
	return f, false
}

// Knows reports whether a remote operation is under way.
func (x *common) Knows(token uint64) bool { return x.remotes.Get(token) != nil }

// WriteRing starts a write to a ring of p, for the streams of frames.
func (x *common) WriteRing(id link.Peer, number uint64, src link.Ref, dst link.Key, notify uint64) error {
	op, token := x.remotes.Alloc()
	*op = remoteOp{kind: remoteRing, id: number}
	err := x.ports.Write(id, token, src, dst, notify)
	if err != nil {
		x.remotes.Release(token)
	}
	return err
}

// Access starts a read or write of a window of p, for the room of one-sided operations.
func (x *common) Access(p link.Peer, write bool, f Foreign, memory link.Ref, key link.Key) (err error) {
	token := x.remote(remoteAccess, f.Session, f.ID)
	op := x.remotes.Get(token)
	op.other, op.rank = f.View, f.Rank
	if write {
		err = x.ports.Write(p, token, memory, key, 0)
	} else {
		err = x.ports.Read(p, token, memory, key)
	}
	if err != nil {
		x.cancelRemote(token)
	}
	return err
}

// remoteOp is a remote read or write that is under way. It holds its session's memory itself, because
// its request may end earlier.
type remoteOp struct {
	kind     remoteKind
	session  ranks.SessionID
	id       uint64
	other    uint64 // request of the peer; view of an access
	rank     uint32 // receiving rank of the peer; for an access, the rank that has started it
	off      uint64 // offset in the message
	more     bool   // this part of a message is not its last
	refuse   bool   // the receive has ended early, and its sender has to be notified
	collides bool   // the receiver cannot see the end of the message
}

type remoteKind uint8

const (
	remoteMessage remoteKind = iota // read of a matched message
	remotePut                       // write of a message that was asked for
	remoteRing                      // small frame
	remoteOffered                   // write of a message to a receive that was offered
	remoteAccess                    // put or get of a window
)

// remote registers a remote operation and returns its token.
func (x *common) remote(kind remoteKind, s ranks.SessionID, id uint64) uint64 {
	op, token := x.remotes.Alloc()
	*op = remoteOp{kind: kind, session: s, id: id}
	x.ranks.Hold(s)
	return token
}

// cancelRemote releases a token whose operation the link refused.
func (x *common) cancelRemote(token uint64) {
	s := x.remotes.Get(token).session
	x.remotes.Release(token)
	x.ranks.Unhold(s)
}

// writeDone reports a write to the receiver where the link does not, whether or not the send is
// still open.
func (tx *sender) writeDone(p *peer, op *remoteOp, err error) {
	st := tx.sends.Get(op.id)
	if st != nil {
		st.move.Ended()
	}
	switch {
	case st == nil:
	case err != nil:
		st.move.WriteFailed(op.off)
	case !op.more:
		tx.endSend(op.id, st, shm.StatusOK, true)
	}
	tx.sendWritten(p, op, rendezvous.Written(p.Caps(), err))
}

// sendWritten reports the end of a write to the receiver, if the step requires it.
func (tx *sender) sendWritten(p *peer, op *remoteOp, step rendezvous.Step) {
	if step.Do != rendezvous.Notify || p.over() {
		return
	}
	f, _ := tx.channel.Emit(p.Peer, wire.Written)
	f.Head.A, f.Head.Tag, f.Head.Dst = op.other, op.id, op.rank
	if step.Failed {
		f.Head.B = 1 + op.off
	}
}

// RemoteWritten takes a peer's notified write into a receive.
func (rx *receiver) RemoteWritten(id link.Peer, request uint64) error {
	return rx.onWritten(&rx.peers[id], request, true, nil)
}

// Polled reports whether there are receives whose end only polling shows.
func (rx *receiver) Polled() bool {
	for _, id := range rx.polled { // the link reports the end of a read
		if r := rx.recvs.Get(id); r != nil && r.offered && !rx.peerOf(r.pattern.Source).Caps().Notify {
			return true
		}
	}
	return false
}

// Waits reports whether receives wait for their memory to be registered in a later turn.
func (rx *receiver) Waits() bool { return rx.later.Len() > 0 }
