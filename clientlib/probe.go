package outrigger

import (
	"context"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Message is a message that a matched probe has claimed: only MrecvInto receives it.
type Message struct {
	comm   *Comm
	handle uint64
	status Status
}

// Status returns the source, tag and length of the message.
func (m Message) Status() Status { return m.status }

// probe submits a probe and waits for its completion.
func (c *Comm) probe(ctx context.Context, what string, code shm.Op, flags uint8, src, tag int) (outcome, error) {
	r, err := c.startProbe(ctx, what, code, flags, src, tag)
	if err != nil {
		return outcome{}, err
	}
	return r.await(ctx)
}

func (c *Comm) startProbe(ctx context.Context, what string, code shm.Op, flags uint8, src, tag int) (r Request, err error) {
	s := c.session
	if err := s.enterCall(ctx); err != nil {
		return r, s.fail(what, c, src, tag, 0, err)
	}
	defer s.mu.Unlock()
	d := shm.Descriptor{Op: code, Flags: flags}
	var o *op
	if err = c.pattern(&d, src, tag); err == nil {
		if o, r, err = s.begin(what, c, src, tag, 0); err == nil {
			o.receives, o.claims, o.source = true, code == shm.OpMprobe, shm.AnySource
			r, err = s.submitOp(r, o, &d)
		}
	}
	if err != nil {
		return r, s.fail(what, c, src, tag, 0, err)
	}
	return r, nil
}

// Probe waits until a message can be received, and returns its status.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	out, err := c.probe(ctx, "probe", shm.OpProbe, 0, src, tag)
	return out.Status, err
}

// Iprobe reports whether a message can be received, and returns its status if so.
func (c *Comm) Iprobe(src, tag int) (Status, bool, error) {
	out, err := c.probe(context.Background(), "iprobe", shm.OpProbe, shm.FlagNow, src, tag)
	if err != nil || out.code == shm.StatusNoMessage {
		return Status{}, false, err
	}
	return out.Status, true, nil
}

// Mprobe is Probe that claims the message, so that no other receive matches it.
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (Message, error) {
	out, err := c.probe(ctx, "mprobe", shm.OpMprobe, 0, src, tag)
	if err != nil {
		return Message{}, err
	}
	return Message{c, out.aux, out.Status}, nil
}

// Improbe is Mprobe that does not wait.
func (c *Comm) Improbe(src, tag int) (Message, bool, error) {
	out, err := c.probe(context.Background(), "improbe", shm.OpMprobe, shm.FlagNow, src, tag)
	if err != nil || out.code == shm.StatusNoMessage {
		return Message{}, false, err
	}
	return Message{c, out.aux, out.Status}, true, nil
}

// MrecvInto receives the message that a matched probe has claimed.
func MrecvInto[T Number](ctx context.Context, m Message, buf []T) (Status, error) {
	if m.comm == nil || m.handle == 0 {
		return Status{}, fmt.Errorf("outrigger: mrecv: %w: no message", ErrInvalid)
	}
	r, err := m.comm.startRecv(ctx, "mrecv", elementsOf(buf), m.status.Source, m.status.Tag, m.handle)
	if err != nil {
		return Status{}, err
	}
	out, err := r.await(ctx)
	return out.Status, err
}
