package core

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Failure is why the job ended: the first failure, as far as this sidecar knows.
type Failure struct {
	Rank   uint32 // failed rank; shm.AnySource when none can be named
	Code   uint32 // exit code to report
	Reason string
	At     int64 // when this sidecar learnt of it, nanoseconds of the engine's clock
}

func (f *Failure) Error() string {
	if f.Rank == shm.AnySource {
		return f.Reason
	}
	return fmt.Sprintf("rank %d failed: %s", f.Rank, f.Reason)
}

// abortText bounds the reason in an Abort frame. The sidecar of the cause may have a longer reason,
// which a verdict prefers (podlife.Blame).
const abortText = link.InlineMax

// ownText bounds a reason that a rank gives, by the size of its segment.
const ownText = 200

// cutText cuts text to the size of an Abort frame.
func cutText(text string) string { return podlife.Cut(text, abortText, podlife.TextCut) }

// Failed returns why the job failed, or nil.
func (c *Core) Failed() *Failure { return c.fail }

// failJob ends the job: peers and applications are notified, and each request ends (P§7). Only
// the first failure counts.
func (c *Core) failJob(f *Failure) {
	if c.fail != nil {
		return
	}
	f.At = c.now
	c.fail = f
	c.job.Fail()
	c.channel.JobFailed()
	c.ports.Note(NoteFailed, c.cfg.Self, f.Rank, 0, uint64(f.Code), 0)
	c.spread(f)
	c.startSweep() // windows that have ended do not wait for peers any more
	for _, e := range c.hosted {
		if s := e.session; s != nil {
			c.reportFailure(s)
			c.begin(ending{session: s})
		}
	}
}

func (c *Core) emitAbort(p *peer, f *Failure) {
	out, _ := c.channel.Emit(p.Peer, wire.Abort)
	out.Head.Src, out.Head.A = f.Rank, uint64(f.Code)
	out.Head.Flags |= wire.FlagAckNow
	out.Head.Length = uint32(copy(out.Inline[:], cutText(f.Reason)))
}

// reportFailure completes the session with the failure of the job.
func (c *Core) reportFailure(s *session) {
	c.ports.Failed(s.ID(), c.fail.Error())
	c.ranks.Publish(s.ID(), &shm.Descriptor{Op: shm.OpFailed, Peer: c.fail.Rank, Status: shm.Status(c.fail.Code)})
}

func (c *Core) onAbort(p *peer, h *wire.Header, payload []byte) error {
	if len(payload) > abortText {
		return fmt.Errorf("%w: abort with %d bytes of text", link.ErrProtocol, len(payload))
	}
	// It may have the number of a frame whose payload is half here: a peer that has given this
	// sidecar up has dropped its frames (channel/reject.go).
	c.dropInbound(p)
	p.knows, p.told = true, true
	c.failJob(&Failure{Rank: h.Src, Code: uint32(h.A), Reason: string(payload)})
	return nil
}

func (c *Core) submitAbort(s *session, d *shm.Descriptor) error {
	ref, err := s.Memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	text := []byte(podlife.TextAborted)
	if ref.Len > 0 {
		text = append(text, ": "...)
		text = append(text, ownWords(c.ports.Bytes(ref.Slice(0, min(ref.Len, ownText+1))))...)
	}
	c.failJob(&Failure{Rank: s.endpoint.rank, Code: exitCode(uint32(d.Status)), Reason: string(text)})
	return nil
}

// ownWords returns the reason of an abort as it is reported. A text of one byte more than
// there is room for shows that it was longer.
func ownWords(text []byte) string { return podlife.Cut(oneLine(text), ownText, podlife.TextCut) }

// exitCode returns the code of an abort as the exit code of a process: the low 8 bits, or 1 if they
// are 0.
func exitCode(code uint32) uint32 { return max(code&0xff, 1) }

// oneLine returns text of a rank in a form that is safe in logs, statuses and terminals: one line
// without control characters. It is never longer than the text.
func oneLine(text []byte) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError: // also the rest of a character that was cut
			return '?'
		case !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, string(text))
}

// Fail ends the job for a reason from outside the protocols.
func (c *Core) Fail(now int64, f *Failure) {
	c.at(now)
	c.failJob(f)
}

// peerDied ends the job because of a dead peer, since each job needs all its ranks. A peer that has
// sent Bye has no rank any more. If no rank of this sidecar is left, the Bye may have been lost with a
// connection; other sidecars report the death of the peer then.
func (c *Core) peerDied(p *peer, cause error) {
	owed := !p.Out().Empty()
	p.knows = p.told || p.knows && !owed
	c.channel.Bury(p.Peer)
	c.startSweep() // answers whose session has ended are not needed any more
	if p.Gone() {
		c.allLeft(p)
		return
	}
	f := c.loss(p, cause)
	if c.left {
		if owed { // the peer will wait for these frames
			p.loss = f
		}
		c.allLeft(p)
		return
	}
	if c.fail != nil && !p.knows {
		c.announceFailure(c.fail) // the dead peer had to notify other pods
	}
	c.failJob(f)
}

// loss returns the failure that follows from the death of a peer.
func (c *Core) loss(p *peer, cause error) *Failure {
	first, last := shm.AnySource, shm.AnySource
	for r, pod := range c.cfg.PodOf {
		if link.Peer(pod) == p.ID() {
			if first == shm.AnySource {
				first = uint32(r)
			}
			last = uint32(r)
		}
	}
	return &Failure{Rank: first, Code: 1, Reason: fmt.Sprintf(podlife.TextLost+"%d (%s) is lost: %v", p.ID(), podlife.RankRange(int(first), int(last)), cause)}
}

// dropStreams ends the transfers to and from p.
func (c *Core) dropStreams(p *peer) {
	c.dropInbound(p)
	p.DropTransfers()
}

// dropInbound ends the frame whose payload a dead peer was sending.
func (c *Core) dropInbound(p *peer) {
	h, at, is := p.Placing()
	if !is {
		return
	}
	messages := h.Type == wire.Eager || h.Type == wire.Data
	p.Abandon()
	if messages {
		c.p2p.Abandon(p.ID(), at)
	} else {
		c.dropOneSided(p, at)
	}
}
