package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/mover"
)

// What the movers of rendezvous decide (package mover) is carried out here: they
// know neither requests nor peers.

// fragmentMax is the largest payload of one frame.
const fragmentMax = wire.FrameMax

func (c *Core) path(p *peer) mover.Path {
	return mover.Path{Protocol: c.cfg.Rendezvous, Caps: p.Caps()}
}

// sendRendezvous announces a message and keeps it until the receiver has it
// (P§5.2).
func (c *Core) sendRendezvous(s *session, p *peer, o *outgoing) {
	st, id := c.sends.Alloc()
	*st = send{
		owner: o.owner, src: o.src, dst: o.dst, context: o.context, tag: o.tag, total: o.total,
		payload: o.payload, staged: o.class == shm.ClassStaged, reply: o.reply,
		move: mover.Source{Total: o.total, Mem: o.payload},
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
		c.ranks.Hold(s.ID())
	}
	step := st.move.Start(c.path(p))
	if step.Do == mover.Register {
		step = c.registerSource(p, st, step.Mem)
	}
	step.Offer.Data, step.Offer.About = o.data.Word(), o.about
	f, _ := c.channel.Emit(p.Peer, wire.RTS)
	c.channel.Queued(o.src)
	o.header(&f.Head)
	f.Head.A, f.Head.B = o.total, id
	f.Head.Length = uint32(step.Offer.Encode(f.Inline[:]))
	c.setState(s, o.owner, ranks.RequestSend, id)
	switch {
	case o.owner.coll != 0:
		c.collectives.Opened(o.owner.coll, collective.MessageID{ID: id, Send: true})
	case o.owner.silent:
		s.keepSilent(id, st)
	}
}

func (c *Core) registerSource(p *peer, st *send, mem link.Ref) mover.Step {
	key, err := c.ports.Register(p.ID(), mem)
	if err != nil {
		c.stats.Unregistered++
		return st.move.Unregistered()
	}
	var last uint8
	if c.path(p).Polls() {
		last = c.lastByte(mem)[0]
	}
	return st.move.Registered(key, last)
}

// onRTS matches an announcement.
func (c *Core) onRTS(p *peer, h *wire.Header, payload []byte) error {
	var body wire.RTSBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	e, err := c.hostedBy(p, h)
	if err != nil {
		return err
	}
	if c.turnsAway(e, h) {
		c.refuse(&message{head: *h, peer: p.ID()}, c.job.Refusal())
		return nil
	}
	data := ranks.Carried(h, uint64(body.Data)|uint64(body.About)<<32)
	if r, id := c.arrive(e, h); r != nil {
		c.bind(r, p, h, h.A, data)
		c.startRendezvous(r, id, h.B, &body)
		return nil
	}
	if err := p.announces(); err != nil {
		return err
	}
	m, _ := c.park(p, e, h, h.A, link.Ref{}, data)
	m.offer = body
	return nil
}

// startRendezvous fetches a matched message whose payload is still with its
// sender.
func (c *Core) startRendezvous(r *recv, id, remote uint64, offer *wire.RTSBody) {
	p := &c.peers[r.peer]
	r.move = mover.Target{Remote: remote, Total: r.length, Want: r.want, Staged: r.class == shm.ClassStaged}
	if r.class != shm.ClassInline && r.class != shm.ClassStaged {
		r.move.Mem = r.buf.Slice(0, r.want)
	}
	if r.lent.of != nil && p.Caps().Lent {
		r.move.Mem = r.lent.at.Slice(0, r.want)
	}
	if c.over(p) {
		c.endRecv(id, r, c.job.Lost(p.ID()))
		return
	}
	c.moveTarget(p, r, id, r.move.Start(c.path(p), offer))
}

// moveTarget carries out what the receiving end of a rendezvous wants done.
func (c *Core) moveTarget(p *peer, r *recv, id uint64, s mover.Step) {
	for {
		switch s.Do {
		case mover.Register:
			if key, was := r.move.Part(); was {
				c.endKey(p.ID(), key, true)
			}
			key, err := c.registerTarget(p, s.Mem)
			if errors.Is(err, link.ErrLater) {
				r.move.Later()
				if c.retrying { // what is too large beside others is the first of the next turn
					c.later.Unshift(id)
				} else {
					c.later.Push(id)
				}
				return
			}
			if err != nil {
				c.stats.Unregistered++
				s = r.move.Unregistered()
				continue
			}
			s = r.move.Registered(key)
			continue
		case mover.Read:
			if !c.read(p, r, id, s) {
				s = r.move.Refused(c.path(p))
				continue
			}
			c.stats.Get.Add(r.want)
		case mover.Ask:
			c.emitPull(p, r, id, &s.Pull, s.More)
		case mover.Supply:
			c.tellStaged(r)
		case mover.Finish:
			c.tellFin(p, r.move.Remote, shm.StatusOK)
			c.finishRendezvous(r, id)
		case mover.End:
			c.finishRendezvous(r, id)
		}
		return
	}
}

// registerTarget registers a receive's memory, or a part of it. What arrives while others
// wait for that goes behind them: a turn begins with what has arrived, and they might
// never be the first.
func (c *Core) registerTarget(p *peer, mem link.Ref) (link.Key, error) {
	if c.later.Len() > 0 && !c.retrying {
		return link.Key{}, link.ErrLater
	}
	return c.ports.Register(p.ID(), mem)
}

// registerLater goes on with the receives whose memory was not registered in an earlier
// turn, as far as the link does it in this one.
func (c *Core) registerLater() {
	c.retrying = true
	defer func() { c.retrying = false }()
	for waiting := c.later.Len(); c.later.Len() == waiting && waiting > 0; waiting-- {
		id := c.later.Pop()
		r := c.recvs.Get(id)
		if r == nil {
			continue
		}
		if step, ok := r.move.Retry(); ok {
			c.moveTarget(&c.peers[r.peer], r, id, step)
		}
	}
}

// lastByte is the last byte of ref.
func (c *Core) lastByte(ref link.Ref) []byte { return c.ports.Bytes(ref.Slice(ref.Len-1, 1)) }

// PollMemory looks at all that peers change without a word: their rings, and the
// last bytes of messages. It returns how much has come. A peer that writes what no
// correct one does loses its connection.
func (c *Core) PollMemory(now int64) int {
	c.at(now)
	return c.channel.PollRings() + c.pollReads()
}

// pollReads ends the receives whose last byte has come.
func (c *Core) pollReads() (came int) {
	for i := len(c.polled) - 1; i >= 0; i-- {
		id := c.polled[i]
		r := c.recvs.Get(id)
		if r != nil {
			if r.move.Polling() && !r.move.Come(c.lastByte(r.move.Mem)[0]) {
				continue
			}
			if r.offered && r.move.Polling() {
				c.put(r, id)
			} else {
				c.moveTarget(&c.peers[r.peer], r, id, r.move.Polled())
			}
			came++
		}
		last := len(c.polled) - 1
		c.polled[i] = c.polled[last]
		c.polled = c.polled[:last]
	}
	return came
}

// read starts a remote read; false: the link refuses it.
func (c *Core) read(p *peer, r *recv, id uint64, s mover.Step) bool {
	if s.Poll {
		c.lastByte(s.Mem)[0] = s.Guard
	}
	token := c.remote(remoteMessage, r.owner.session, id)
	if err := c.ports.Read(p.ID(), token, s.Mem, s.Key); err != nil {
		c.cancelRemote(token)
		c.stats.Unregistered++
		return false
	}
	r.token = token
	r.move.Started()
	c.remotes.Get(token).other = r.move.Remote
	if s.Poll {
		c.polled = append(c.polled, id)
	}
	return true
}

func (c *Core) emitPull(p *peer, r *recv, id uint64, body *wire.PullBody, more bool) {
	f, _ := c.channel.Emit(p.Peer, wire.Pull)
	if more {
		f.Head.Flags |= wire.FlagMore
	}
	f.Head.A, f.Head.B = r.move.Remote, id
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
}

// onPull serves the receiver of a rendezvous (P§5.3).
func (c *Core) onPull(p *peer, h *wire.Header, payload []byte) error {
	var body wire.PullBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	st := c.sends.Get(h.A)
	if st == nil { // ended here meanwhile: its session is gone
		if err := c.sends.Ended(h.A, "pull from"); err != nil {
			return err
		}
		c.tellEnded(p, h.B)
		return nil
	}
	if st.sync || c.peerOf(st.dst) != p {
		return fmt.Errorf("%w: pull of an unknown send", link.ErrProtocol)
	}
	step, err := st.move.Pulled(p.Caps(), h.B, &body)
	if err != nil {
		return err
	}
	more := h.Flags&wire.FlagMore != 0
	if step.Do == mover.Write && c.write(p, st, h.A, step, body.Offset, more) {
		c.stats.Put.Part(body.Bytes, !more)
		return nil
	}
	c.stats.Stream.Part(body.Bytes, !more)
	c.flow(p, h.A, st)
	return nil
}

// write starts the remote write of all that was asked for, at off; false: the link
// refuses it.
func (c *Core) write(p *peer, st *send, id uint64, s mover.Step, off uint64, more bool) bool {
	token := c.remote(remotePut, st.owner.session, id)
	op := c.remotes.Get(token)
	op.other, op.rank, op.off, op.more = st.move.Remote, st.dst, off, more
	if err := c.ports.Write(p.ID(), token, s.Mem, s.Key, st.move.Remote); err != nil {
		c.cancelRemote(token)
		return false
	}
	st.move.Writing()
	return true
}

// placeData finds where a fragment goes in the receive's buffer.
func (c *Core) placeData(p *peer, h *wire.Header) (ref link.Ref, err error) {
	r := c.recvs.Get(h.A)
	if r == nil || r.peer != p.ID() || !r.matched {
		if r == nil {
			// ended here meanwhile: its session is gone
			return c.discard(p, h), c.recvs.Ended(h.A, "data for")
		}
		return ref, fmt.Errorf("%w: data for an unknown receive", link.ErrProtocol)
	}
	n := uint64(h.Length)
	if err := r.move.Accept(h.B, n); err != nil {
		return ref, err
	}
	if r.class == shm.ClassInline {
		// The receive's own memory is not in a region: through the pool.
		ref, ok := c.pool.passing(n)
		if !ok {
			return ref, errGranted
		}
		return c.target(p, placeData, h.A, ref, nil), nil
	}
	if r.class == shm.ClassStaged {
		k := r.chunks.at(h.B, n)
		if k == nil {
			return ref, fmt.Errorf("%w: data of %d bytes at %d, which was not asked for", link.ErrProtocol, n, h.B)
		}
		return c.target(p, placeData, h.A, k.ref.Slice(h.B-k.off, n), r.endpoint.session), nil
	}
	return c.target(p, placeData, h.A, r.buf.Slice(h.B, n), r.endpoint.session), nil
}

// dataPlaced counts a fragment; the last one ends the receive.
func (c *Core) dataPlaced(p *peer, id uint64, h *wire.Header, at link.Ref) error {
	r := c.recvs.Get(id)
	if at.Region == RegionPool {
		if r != nil {
			copy(r.inline[h.B:], c.ports.Bytes(at))
		}
		c.pool.passed(at)
	}
	if r == nil {
		return nil
	}
	step := r.move.Placed(uint64(h.Length))
	if r.class == shm.ClassStaged {
		c.chunkFilled(r)
	}
	c.moveTarget(p, r, id, step)
	return nil
}

// finishRendezvous completes the receive.
func (c *Core) finishRendezvous(r *recv, id uint64) {
	c.endRecv(id, r, shm.StatusOK)
}

// onFin ends a rendezvous at its sender.
func (c *Core) onFin(p *peer, h *wire.Header) error {
	st := c.sends.Get(h.A)
	if st == nil {
		return c.sends.Ended(h.A, "fin for")
	}
	if st.sync || c.peerOf(st.dst) != p {
		return fmt.Errorf("%w: fin for an unknown send", link.ErrProtocol)
	}
	c.endSend(h.A, st, shm.Status(h.B), true)
	return nil
}

// onEnded ends a receive whose sender has ended before it was asked (P§5.3).
func (c *Core) onEnded(p *peer, h *wire.Header) error {
	r := c.recvs.Get(h.A)
	if r == nil {
		return c.recvs.Ended(h.A, "the end of")
	}
	if r.peer != p.ID() || !r.matched || r.move.Remote == 0 || h.B == 0 {
		return fmt.Errorf("%w: the end of a send that nobody asked for", link.ErrProtocol)
	}
	c.endRecv(h.A, r, shm.Status(h.B))
	return nil
}

// onWritten is told of a remote write into a receive: by the link, or by the
// sender's frame where the link does not notify.
func (c *Core) onWritten(p *peer, id uint64, whole bool, h *wire.Header) error {
	r := c.recvs.Get(id)
	if r == nil {
		if err := c.recvs.Ended(id, "a write for"); err != nil {
			return err
		}
		if !whole {
			return c.endUnwritten(p, h)
		}
		return nil
	}
	if r.offered && c.peerOf(r.pattern.Source) == p {
		c.onPut(p, r, id, whole, h)
		return nil
	}
	if r.peer != p.ID() || !r.matched {
		return fmt.Errorf("%w: notice of a write that was not asked for", link.ErrProtocol)
	}
	var step mover.Step
	var err error
	if whole {
		step, err = r.move.Written()
	} else {
		step, err = r.move.Unwritten(h.B - 1)
	}
	if err != nil {
		return err
	}
	c.moveTarget(p, r, id, step)
	return nil
}

// endUnwritten answers for a receive that has ended before a write to it failed. It
// had the message all the same, whether or not its rank has left since; or its rank
// left before, and has refused the message then. Only who was offered a receive has
// not been told that.
func (c *Core) endUnwritten(p *peer, h *wire.Header) error {
	status := shm.StatusOK
	if int(h.Dst) >= len(c.endpoints) || c.endpoints[h.Dst] == nil {
		return fmt.Errorf("%w: a write for rank %d, which is not here", link.ErrProtocol, h.Dst)
	}
	if c.unmet[h.A] || c.fail != nil {
		status = c.job.Refusal()
	}
	c.tellFin(p, h.Tag, status)
	return nil
}

// RemoteDone reports the end of a remote read or write that the core started.
func (c *Core) RemoteDone(now int64, id link.Peer, token uint64, err error) {
	c.at(now)
	op := c.remotes.Get(token)
	if op == nil {
		return
	}
	done := *op
	c.remotes.Release(token)
	p := &c.peers[id]
	if err != nil {
		if c.stats.RemoteErrors++; c.over(p) {
			c.startSweep() // the last one has left alone what was under way
		}
	}
	switch done.kind {
	case remoteRing:
		c.channel.RingWritten(id, done.id, err)
		return // it is no session's
	case remoteMessage:
		if r := c.recvs.Get(done.id); r != nil {
			c.moveTarget(p, r, done.id, r.move.Read(err))
		} else if done.refuse {
			c.tellFin(p, done.other, shm.StatusPeerLeft)
		}
	case remotePut:
		c.writeDone(p, &done, err)
	case remoteOffered:
		c.putDone(p, token, &done, err)
	case remoteAccess:
		c.onesided.Accessed(p.ID(), onesided.Accessed{ID: done.id, View: done.other, Rank: done.rank}, err)
	}
	c.ranks.Unhold(done.session)
}

// remoteOp is a remote read or write on its way. It holds its session's memory
// for itself, since the request behind it may end before it.
type remoteOp struct {
	kind     remoteKind
	session  SessionID
	id       uint64
	other    uint64 // the peer's request; of an access its view
	rank     uint32 // of the peer, that receives; of an access the one that has started it
	off      uint64 // of a message, where it begins
	more     bool   // of a message that moves in parts: this is not its last
	refuse   bool   // the receive has ended early, and its sender is still to be told
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
func (c *Core) remote(kind remoteKind, s SessionID, id uint64) uint64 {
	op, token := c.remotes.Alloc()
	*op = remoteOp{kind: kind, session: s, id: id}
	c.ranks.Hold(s)
	return token
}

// cancelRemote takes back a token whose operation the link refused.
func (c *Core) cancelRemote(token uint64) {
	s := c.remotes.Get(token).session
	c.remotes.Release(token)
	c.ranks.Unhold(s)
}

// writeDone tells the receiver about a write of which the link has not told it,
// whether or not the send is still there.
func (c *Core) writeDone(p *peer, op *remoteOp, err error) {
	st := c.sends.Get(op.id)
	if st != nil {
		st.move.Ended()
	}
	switch {
	case st == nil:
	case err != nil:
		st.move.Again(op.off)
	case !op.more:
		c.endSend(op.id, st, shm.StatusOK, true)
	}
	c.tellWritten(p, op, mover.Written(p.Caps(), err))
}

// tellWritten carries out what is to be told of the end of a write.
func (c *Core) tellWritten(p *peer, op *remoteOp, step mover.Step) {
	if step.Do != mover.Tell || c.over(p) {
		return
	}
	f, _ := c.channel.Emit(p.Peer, wire.Written)
	f.Head.A, f.Head.Tag, f.Head.Dst = op.other, op.id, op.rank
	if step.Failed {
		f.Head.B = 1 + op.off
	}
}

// RemoteWritten reports a peer's notified write (link.Sink.Written).
func (c *Core) RemoteWritten(now int64, id link.Peer, notify uint64) error {
	c.at(now)
	p := &c.peers[id]
	if notify>>32 == 0 { // no request has such a number
		return c.channel.Notified(id, notify)
	}
	return c.onWritten(p, notify, true, nil)
}
