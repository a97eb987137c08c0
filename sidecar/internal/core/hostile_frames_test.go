package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// hostileSizes are sizes at which the core chooses another path.
var hostileSizes = []uint64{0, 1, 8, 64, 65, 4096, 9000, 64 << 10, 64<<10 + 1, 512 << 10}

// hostileSum is the operation of accumulates: sums of u64, the widest type.
const hostileSum = uint64(shm.TypeUint64)<<8 | uint64(shm.ReduceSum)

// peerActs connects a peer, or lets it greet or send a frame.
func (h *hostile) peerActs(p link.Peer) {
	switch {
	case !h.up[p]:
		h.connect(p)
		return
	case h.core.peers[p].State() == channel.Greeting && h.r.IntN(20) > 0:
		h.greet(p)
		return
	}
	f, payload := h.frame(p)
	if f.Type == 0 {
		return
	}
	h.count.frames++
	if f.Length > 4096 && h.r.IntN(2) == 0 {
		h.sendPlaced(p, &f, payload)
		return
	}
	h.took(p, h.core.Deliver(h.now, p, &f, payload))
}

func (h *hostile) took(p link.Peer, err error) {
	if err != nil {
		h.refused(p, err)
	} else {
		h.count.taken++
	}
}

// connect connects a peer, which may be dead, and usually sends its greeting.
func (h *hostile) connect(p link.Peer) {
	x := &h.core.peers[p]
	if h.r.IntN(3) > 0 || x.State() == channel.Ready || x.State() == channel.Greeting {
		return
	}
	if x.State() == channel.Dead {
		if h.r.IntN(4) > 0 {
			return
		}
		h.count.denied++
	}
	h.up[p] = true
	h.core.LinkUp(h.now, p, h.caps)
	if h.up[p] && h.r.IntN(8) > 0 { // else the greeting follows later
		h.greet(p)
	}
}

// greet sends the greeting of a peer: the frames that it has received, or claims to have
// received.
func (h *hostile) greet(p link.Peer) {
	x := &h.core.peers[p]
	f := wire.Header{Type: wire.Ack, Ack: x.Out().Kept(), Credit: x.Credit().Granted()}
	if p > 0 { // else it is of an earlier release
		f.A = wire.FeatureYield
	}
	switch h.r.IntN(20) {
	case 0:
		f.Ack += uint64(h.r.IntN(4))
	case 1: // asks for what its link had taken in
		f.Ack = []uint64{0, x.Out().Base()}[h.r.IntN(2)]
	}
	h.took(p, h.core.Deliver(h.now, p, &f, nil))
}

// sendPlaced delivers a frame whose payload is read into place. The payload may be cut off,
// and other events happen meanwhile.
func (h *hostile) sendPlaced(p link.Peer, f *wire.Header, payload []byte) {
	ref, err := h.core.Place(h.now, p, f)
	if err != nil || !h.up[p] {
		h.took(p, err)
		return
	}
	copy(h.Bytes(ref), payload[:len(payload)/2])
	switch h.r.IntN(4) {
	case 0:
		h.count.abandoned++
		h.cut[p] = *f
		h.breakLink(p, link.ErrBroken)
		return
	case 1:
		if s := SessionID(h.r.IntN(hostileRanks)); h.r.IntN(20) == 0 {
			h.detach(s, []error{nil, errGone}[h.r.IntN(2)])
		}
		for h.core.Advance(h.now) > 0 {
		}
	}
	if !h.up[p] {
		return
	}
	copy(h.Bytes(ref), payload) // the link still believes that it may write there
	h.took(p, h.core.Placed(h.now, p))
}

// deliverOwn delivers the frames that the ranks of this pod have sent to each other. The core
// has made them itself, so that it must refuse none.
func (h *hostile) deliverOwn() {
	batch := h.own
	h.own = nil
	for _, f := range batch {
		if h.core.peers[0].State() == channel.Dead {
			return
		}
		b := make([]byte, f.Head.Length)
		if f.Payload.Region != RegionNone {
			copy(b, h.Bytes(f.Payload))
		} else {
			copy(b, f.Inline[:])
		}
		head := f.Head
		if err := h.core.Deliver(h.now, 0, &head, b); err != nil {
			panic("the core refuses its own frame: " + err.Error())
		}
	}
}

// number returns a request number of a frame that the peer has received, or any number.
func (h *hostile) number() uint64 {
	if p := h.r.IntN(hostilePods); len(h.links[p].seen) > 0 && h.r.IntN(6) > 0 {
		f := h.links[p].seen[h.r.IntN(len(h.links[p].seen))]
		return []uint64{f.A, f.B}[h.r.IntN(2)]
	}
	return []uint64{0, 1, 5, 1 << 32, 1<<64 - 1, 1 << 20}[h.r.IntN(6)]
}

func (h *hostile) size() uint64 { return hostileSizes[h.r.IntN(len(hostileSizes))] }

// frame returns the next frame of a peer: an answer to a frame that it has received, or any
// frame.
func (h *hostile) frame(p link.Peer) (f wire.Header, payload []byte) {
	switch k := h.r.IntN(16); {
	case h.cut[p].Type != 0 && k > 0: // the interrupted frame is sent again unchanged
		f, payload = h.cut[p], make([]byte, h.cut[p].Length)
		h.cut[p] = wire.Header{}
	case k < 8 && len(h.links[p].seen) > 0:
		f, payload = h.answerTo(h.links[p].seen[h.r.IntN(len(h.links[p].seen))])
	case k < 15:
		f, payload = h.anyFrame(p, requests[h.r.IntN(len(requests))])
	default:
		f, payload = h.anyFrame(p, anyType(h.r.IntN(int(wire.Concealed)+3)))
	}
	x := &h.core.peers[p]
	if f.Type != wire.Ring && f.Type != wire.Look && f.Type > wire.Heartbeat {
		f.Seq = x.Arrived() + 1
	}
	// A link detects a peer that acknowledges frames that were not written.
	f.Ack = x.Out().Base()
	if w := h.links[p].written; w > f.Ack {
		f.Ack += uint64(h.r.IntN(int(w-f.Ack) + 1))
	}
	if f.Credit = x.Credit().Granted(); h.r.IntN(3) == 0 {
		f.Credit = x.Credit().Used() + 128<<10/wire.CreditUnit
	}
	return f, payload
}

// answerTo returns the correct answer to a frame, or nearly that. Type 0 means that the frame
// has no answer.
func (h *hostile) answerTo(q wire.Header) (f wire.Header, payload []byte) {
	f = wire.Header{Src: q.Dst, Dst: q.Src, Context: q.Context, Tag: q.Tag, A: q.A}
	coin := uint64(h.r.IntN(2))
	switch q.Type {
	case wire.Eager:
		if q.Flags&wire.FlagSync != 0 {
			f.Type, f.A = wire.Matched, q.B
		}
		if q.Flags&wire.FlagReply != 0 {
			f.Type, f.Flags, f.A, f.B = wire.Matched, wire.FlagReply, q.B, uint64(shm.StatusPeerLeft)
		}
	case wire.RTS:
		if f.A = q.B; coin == 0 {
			f.Type, f.B = wire.Fin, uint64(h.r.IntN(2))
			break
		}
		f.Type, f.B = wire.Pull, h.number()
		if h.r.IntN(4) == 0 {
			f.Flags |= wire.FlagMore
		}
		payload = bodyOf(&f, &wire.PullBody{Offset: uint64(h.r.IntN(2)) * 4096, Bytes: h.size(), Key: coin & uint64(h.r.IntN(2))})
	case wire.Pull:
		f.Type, f.A = []wire.Type{wire.Data, wire.Written, wire.Ended}[h.r.IntN(3)], q.B
		switch f.B = coin; {
		case f.Type == wire.Data:
			f.B = coin * 4096
			payload = h.payload(&f, h.size())
		case f.Type == wire.Written && h.r.IntN(2) == 0:
			f.B = 1 + h.size()
		}
	case wire.Get:
		f.Type, f.B = wire.Got, 0
		payload = h.payload(&f, min(q.B, wire.FrameMax))
	case wire.Fetch:
		f.Type = wire.Fetched
		payload = h.payload(&f, 8)
	case wire.Lock:
		f.Type = wire.Locked
	case wire.Flush, wire.Unlock:
		f.Type, f.B = wire.Flushed, 6*coin
	case wire.Retract:
		f.Type, f.B = wire.Retracted, coin
	case wire.Ready:
		f.Type, f.B = []wire.Type{wire.Taken, wire.Written, wire.Withdrawn}[h.r.IntN(3)], coin
		f.Tag = h.number()
	case wire.Withdraw:
		f.Type, f.B, f.Src, f.Dst = wire.Withdrawn, coin, q.Dst, q.Src
	case wire.Expose:
		f.Type, f.B = []wire.Type{wire.Exposed, wire.Exposed, wire.Conceal}[h.r.IntN(3)], uint64(h.r.IntN(8)/7)
		if f.Type == wire.Exposed {
			h.count.exposed++
			payload = bodyOf(&f, &wire.ExposedBody{Key: coin, Len: 1 << 20})
		}
	case wire.Conceal:
		f.Type, f.A = wire.Concealed, q.B
	case wire.Yield:
		f.Type, f.A = wire.Yielded, q.A*coin
	}
	return f, payload
}

func (h *hostile) payload(f *wire.Header, n uint64) []byte {
	f.Length = uint32(n)
	return make([]byte, n)
}

// requests are frames that a peer may send at any time. Most other frames end the connection
// if nothing asked for them, and then a run would consist of broken connections.
var requests = []wire.Type{
	wire.Eager, wire.Eager, wire.Eager, wire.RTS, wire.RTS, wire.RTS, wire.Put, wire.Acc, wire.Get, wire.Fetch, wire.Lock, wire.Unlock,
	wire.Flush, wire.Expose, wire.Expose, wire.Ready, wire.Ring, wire.Heartbeat, wire.Place, wire.Look,
}

// anyType returns a type that a peer may send: those up to Concealed, and from Again on.
func anyType(n int) wire.Type {
	if n >= int(wire.Concealed) {
		return wire.Again + wire.Type(n) - wire.Concealed
	}
	return wire.Type(1 + n)
}

// anyFrame returns a frame of a type with arbitrary fields.
func (h *hostile) anyFrame(p link.Peer, t wire.Type) (f wire.Header, payload []byte) {
	f = wire.Header{Type: t, Src: uint32(2 * p), Dst: uint32(h.r.IntN(hostileRanks)), Context: 9, Tag: uint64(h.r.IntN(2)), A: h.number(), B: h.number()}
	if p == 1 && h.r.IntN(2) == 0 {
		f.Src++
	}
	switch f.Type {
	case wire.Abort, wire.Bye, wire.Left, wire.Again: // mostly not: the job would soon end
		if h.r.IntN(40) > 0 {
			return wire.Header{}, nil
		}
	case wire.Ring:
		if !h.caps.Write && h.r.IntN(20) > 0 {
			return wire.Header{}, nil
		}
	}
	if t != wire.Eager && t != wire.RTS && h.r.IntN(3) > 0 { // not a number of another request
		f.A, f.B = uint64(1+h.r.IntN(9))<<32, uint64(h.r.IntN(2))
	}
	if t == wire.Again {
		f.B = uint64(h.r.IntN(5))
	}
	if h.r.IntN(3) == 0 {
		f.Flags = uint8(1 << h.r.IntN(5))
	}
	return f, h.anyPayload(p, &f)
}

// anyPayload returns the payload of a frame, and sets the fields that describe it.
func (h *hostile) anyPayload(p link.Peer, f *wire.Header) []byte {
	switch f.Type {
	case wire.Eager:
		f.A = hostileSizes[h.r.IntN(8)]
		return h.payload(f, f.A)
	case wire.RTS:
		f.A = h.size()
		return bodyOf(f, &wire.RTSBody{Key: uint64(h.r.IntN(2))})
	case wire.Pull:
		return bodyOf(f, &wire.PullBody{Bytes: h.size(), Key: uint64(h.r.IntN(2))})
	case wire.Ready:
		f.B = hostileSizes[6+h.r.IntN(4)]
		return bodyOf(f, &wire.ReadyBody{Key: 1, Seq: h.core.peers[p].Out().Base(), Poll: h.r.IntN(2) == 0})
	case wire.Ring:
		return bodyOf(f, &wire.RingBody{Key: 1, Slots: 16, SlotBytes: []uint32{2 << 10, 16 << 10}[h.r.IntN(2)], Notice: 1})
	case wire.Exposed:
		return bodyOf(f, &wire.ExposedBody{Key: uint64(h.r.IntN(2)), Len: h.size()})
	case wire.Data, wire.Got:
		f.B = []uint64{0, 8, 64, 4096}[h.r.IntN(4)]
		return h.payload(f, hostileSizes[1+h.r.IntN(7)])
	case wire.Acc:
		f.A, f.Tag = hostileSum, uint64(h.r.IntN(4096))
		return h.payload(f, hostileSizes[1+h.r.IntN(7)])
	case wire.Put:
		f.Tag = uint64(h.r.IntN(4096))
		return h.payload(f, hostileSizes[1+h.r.IntN(7)])
	case wire.Fetch:
		f.B = hostileSum
		return h.payload(f, 8)
	case wire.Fetched:
		return h.payload(f, 8)
	case wire.Get:
		f.B = hostileSizes[h.r.IntN(6)]
	case wire.Abort:
		return h.payload(f, 10)
	case wire.Look:
		f.A = uint64(h.r.IntN(2))
	case wire.Place:
		f.A, f.B = uint64(h.r.IntN(20)), uint64(h.r.IntN(1<<16))
		return h.payload(f, uint64(h.r.IntN(65)))
	}
	return nil
}
