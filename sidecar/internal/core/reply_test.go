package core

import (
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

const (
	replyRequest = 40 // the receive of the reply
	askRequest   = 41 // the message that asks for it
)

// awaits lets rank 0 post the receive of a reply of n bytes.
func (d *duo) awaits(n uint64) {
	d.t.Helper()
	x := shm.Descriptor{Op: shm.OpRecv, Req: replyRequest, Peer: 1, Tag: 5, Class: shm.ClassArena}
	x.SetBody(0, n, 0, 0)
	d.submit(0, x)
	d.run() // the receive is offered
}

// asks lets rank 0 send a message of n bytes that wants a reply.
func (d *duo) asks(n uint64, flags uint8) {
	d.t.Helper()
	x := shm.Descriptor{Op: shm.OpSend, Req: askRequest, Peer: 1, Context: shutContext, Flags: shm.FlagReply | flags, Status: replyRequest, Class: shm.ClassArena}
	if flags&shm.FlagSilent != 0 {
		x.Class = shm.ClassInline
		x.SetInline(make([]byte, n))
	} else {
		x.SetBody(0, n, 0, 0)
	}
	d.ports[0].ended = nil
	d.submit(0, x)
	d.run()
}

// endsOf returns the statuses with which a request of rank 0 has ended.
func (d *duo) endsOf(req uint32) (all []shm.Status) {
	for _, e := range d.ports[0].ended {
		if e.Req == req {
			all = append(all, e.Status)
		}
	}
	return all
}

func (d *duo) wantEnd(what string, req uint32, want ...shm.Status) {
	d.t.Helper()
	if got := d.endsOf(req); fmt.Sprint(got) != fmt.Sprint(want) {
		d.t.Errorf("%s: request %d has ended with %v, want %v", what, req, got, want)
	}
}

var replyProtocols = []rendezvous.Protocol{rendezvous.Stream, rendezvous.Get, rendezvous.Put, rendezvous.PutNR}

var replyCaps = link.Caps{Register: true, Read: true, Write: true, InOrder: true}

// TestNoReply checks that the receive of a reply ends, once, if the receiver of the message
// discards it, with each protocol by which the message can arrive, and also if the receive was
// offered.
func TestNoReply(t *testing.T) {
	for _, protocol := range replyProtocols {
		for _, x := range []struct {
			what   string
			bytes  uint64
			flags  uint8
			credit bool
			send   []shm.Status
		}{
			{"silent", 32, shm.FlagSilent, true, nil},
			{"small", 5000, 0, true, []shm.Status{shm.StatusOK}},
			{"silent without credit", 32, shm.FlagSilent, false, nil},
			{"small without credit", 5000, 0, false, []shm.Status{shm.StatusPeerLeft}},
			{"large", duoBytes, 0, true, []shm.Status{shm.StatusPeerLeft}},
		} {
			for _, reply := range []uint64{64, duoBytes} { // the second is offered if the protocol offers receives
				what := fmt.Sprintf("%v, %s, reply of %d bytes", protocol, x.what, reply)
				d := newDuo(t, protocol, replyCaps)
				d.submit(1, shm.Descriptor{Op: shm.OpShut, Context: shutContext})
				if d.run(); !x.credit {
					to := &d.cores[0].peers[1]
					for to.Credit().Take(1) {
					}
				}
				d.awaits(reply)
				d.asks(x.bytes, x.flags)
				d.wantEnd(what, replyRequest, shm.StatusPeerLeft)
				if x.flags&shm.FlagSilent == 0 {
					d.wantEnd(what, askRequest, x.send...)
				}
				if c := d.cores[0]; c.Stats().Receives != 0 || c.Stats().Sends != 0 || len(d.keys) != 0 {
					t.Errorf("%s: kept: %d receives, %d sends, %d registrations", what, c.Stats().Receives, c.Stats().Sends, len(d.keys))
				}
			}
		}
	}
}

// TestNoReplyToWhatIsDropped does the same for an unexpected message that the rank that
// claimed it drops, or that is dropped at the end of its rank.
func TestNoReplyToWhatIsDropped(t *testing.T) {
	for _, n := range []uint64{64, 5000, duoBytes} {
		for _, leaves := range []bool{false, true} {
			d := newDuo(t, rendezvous.Get, replyCaps)
			d.awaits(64)
			d.asks(n, 0)
			d.wantEnd("parked", replyRequest)
			if leaves {
				d.cores[1].Detach(d.now, 0, nil)
				for d.cores[1].Advance(d.now) > 0 {
				}
			} else {
				d.submit(1, shm.Descriptor{Op: shm.OpMprobe, Req: 3, Peer: 0, Context: shutContext, Flags: shm.FlagNow})
				found := d.ports[1].ended[len(d.ports[1].ended)-1]
				x := shm.Descriptor{Op: shm.OpDrop}
				x.SetBody(0, 0, found.Aux(), 0)
				d.submit(1, x)
			}
			d.run()
			d.wantEnd(fmt.Sprintf("%d bytes, leaves %v", n, leaves), replyRequest, shm.StatusPeerLeft)
		}
	}
}

// TestReplies checks that the receipt of a message does not end the receive of its reply; only
// the reply does. It also checks that no receive ends if the message names a receive that does
// not exist, belongs to another peer, or was named before.
func TestReplies(t *testing.T) {
	for _, protocol := range replyProtocols {
		d := newDuo(t, protocol, replyCaps)
		d.awaits(64)
		x := duoMessage(shm.OpRecv, 7, 0, 1)
		x.Context, x.Tag = shutContext, 0
		d.submit(1, x)
		d.asks(5000, 0)
		d.wantEnd("received", replyRequest)
		x = shm.Descriptor{Op: shm.OpSend, Req: 8, Peer: 0, Tag: 5, Class: shm.ClassArena}
		x.SetBody(0, 64, 0, 0)
		d.submit(1, x)
		d.run()
		d.wantEnd("replied", replyRequest, shm.StatusOK)
	}
	d := newDuo(t, rendezvous.Get, replyCaps)
	d.submit(1, shm.Descriptor{Op: shm.OpShut, Context: shutContext})
	d.asks(64, 0) // no receive has this number
	d.wantEnd("no receive", replyRequest)
	x := shm.Descriptor{Op: shm.OpRecv, Req: replyRequest, Peer: shm.AnySource, Tag: 5, Class: shm.ClassArena}
	x.SetBody(0, 64, 0, 0)
	d.submit(0, x)
	d.asks(64, 0)
	d.wantEnd("of any source", replyRequest)
	d.submit(0, shm.Descriptor{Op: shm.OpCancel, Req: replyRequest})
	d.run()
	d.wantEnd("cancelled", replyRequest, shm.StatusCancelled)

	d.awaits(64)
	x = shm.Descriptor{Op: shm.OpSend, Req: askRequest, Peer: 1, Context: shutContext, Flags: shm.FlagReply, Status: replyRequest, Class: shm.ClassArena}
	x.SetBody(0, 64, 0, 0)
	before := len(d.types)
	d.submit(0, x)
	x.Req++
	d.submit(0, x)
	d.ports[0].ended = nil
	d.run()
	d.wantEnd("named twice", replyRequest, shm.StatusPeerLeft)
	if got := fmt.Sprint(d.types[before:]); got != "[eager eager matched]" {
		t.Errorf("frames %v, want one match", got)
	}
}

// TestNoReplyComesLate: if a peer reports that there is no reply after the reply has arrived,
// or for a receive that no longer exists, the report is dropped. If the receive waits for no
// reply, the report is a violation.
func TestNoReplyComesLate(t *testing.T) {
	d := newDuo(t, rendezvous.Get, replyCaps)
	d.submit(1, shm.Descriptor{Op: shm.OpShut, Context: shutContext})
	d.run()
	d.awaits(64)
	x := shm.Descriptor{Op: shm.OpSend, Req: askRequest, Peer: 1, Context: shutContext, Flags: shm.FlagReply, Status: replyRequest, Class: shm.ClassArena}
	x.SetBody(0, 64, 0, 0)
	d.submit(0, x)
	d.submit(0, shm.Descriptor{Op: shm.OpCancel, Req: replyRequest})
	d.awaits(64) // the same number again
	d.wantEnd("late", replyRequest, shm.StatusCancelled)

	id := d.cores[0].sessions[0].Request(replyRequest).ID
	h := wire.Header{Type: wire.Matched, Flags: wire.FlagReply, A: id, B: uint64(shm.StatusPeerLeft)}
	if err := d.cores[0].p2p.Frame(1, &h, nil); err == nil {
		t.Error("no reply for a receive that waits for none is taken")
	}
	both := wire.Header{Type: wire.Eager, Flags: wire.FlagReply | wire.FlagSync, Src: 1, Dst: 0}
	if err := d.cores[0].p2p.Eager(1, &both, nil); err == nil {
		t.Error("a synchronous message that wants a reply is taken")
	}
}
