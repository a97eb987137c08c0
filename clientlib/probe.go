package outrigger

import (
	"context"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Message is one that a matched probe has taken: only MrecvInto gets it.
type Message struct {
	comm   *Comm
	handle uint64
	status Status
}

// Status describes the message.
func (m Message) Status() Status { return m.status }

// probe submits a probe and waits for its answer.
func (c *Comm) probe(ctx context.Context, what string, code shm.Op, flags uint8, src, tag int) (op, error) {
	s := c.session
	s.mu.Lock()
	s.d = shm.Descriptor{Op: code, Flags: flags}
	err := c.pattern(&s.d, src, tag)
	d := s.d
	var o *op
	var id uint32
	if err == nil {
		if o, id, err = s.begin(what, c, src, tag, 0); err == nil {
			o.receives = true
			d.Req = id
			s.d = d
			err = s.push()
		}
	}
	s.mu.Unlock()
	if err != nil {
		return op{}, s.fail(what, c, src, tag, 0, err)
	}
	r := Request{s, id, o.gen}
	if err := s.waitDone(ctx, o, o.gen); err != nil {
		if cancelErr := r.Cancel(); cancelErr == nil {
			s.abandon(o)
		}
		return op{}, s.fail(what, c, src, tag, 0, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := *o
	if o.status == shm.StatusNoMessage {
		s.ops.release(id)
		return result, nil
	}
	_, err = s.finish(id, o)
	return result, err
}

func (c *Comm) statusOf(o *op) Status {
	return Status{Source: c.rankOf(o.source), Tag: int(o.rtag), Bytes: int(o.length)}
}

// Probe waits until a message can be received, and describes it.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	o, err := c.probe(ctx, "probe", shm.OpProbe, 0, src, tag)
	if err != nil {
		return Status{}, err
	}
	return c.statusOf(&o), nil
}

// Iprobe is Probe that does not wait; false: there is no such message now.
func (c *Comm) Iprobe(src, tag int) (Status, bool, error) {
	o, err := c.probe(context.Background(), "iprobe", shm.OpProbe, shm.FlagNow, src, tag)
	if err != nil || o.status == shm.StatusNoMessage {
		return Status{}, false, err
	}
	return c.statusOf(&o), true, nil
}

// Mprobe is Probe that takes the message, so that no other receive gets it.
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (Message, error) {
	o, err := c.probe(ctx, "mprobe", shm.OpMprobe, 0, src, tag)
	if err != nil {
		return Message{}, err
	}
	return Message{c, o.aux, c.statusOf(&o)}, nil
}

// Improbe is Mprobe that does not wait.
func (c *Comm) Improbe(src, tag int) (Message, bool, error) {
	o, err := c.probe(context.Background(), "improbe", shm.OpMprobe, shm.FlagNow, src, tag)
	if err != nil || o.status == shm.StatusNoMessage {
		return Message{}, false, err
	}
	return Message{c, o.aux, c.statusOf(&o)}, true, nil
}

// MrecvInto receives the message that a matched probe has taken.
func MrecvInto[T Number](ctx context.Context, m Message, buf []T) (Status, error) {
	if m.comm == nil || m.handle == 0 {
		return Status{}, fmt.Errorf("outrigger: mrecv: %w: no message", ErrInvalid)
	}
	r, err := m.comm.startRecv("mrecv", bytesOf(buf), m.status.Source, m.status.Tag, m.handle)
	if err != nil {
		return Status{}, err
	}
	return r.await(ctx)
}

// Persistent is a send or receive that is started many times.
type Persistent struct{ start func() (Request, error) }

// Start starts it once more; the request of the last start has ended.
func (p *Persistent) Start() (Request, error) { return p.start() }

// SendInit prepares a send of buf.
func SendInit[T Number](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := c.checkPeer(dst); err != nil {
		return nil, c.session.fail("send init", c, dst, tag, 0, err)
	}
	return &Persistent{func() (Request, error) { return Isend(c, buf, dst, tag) }}, nil
}

// RecvInit prepares a receive into buf.
func RecvInit[T Number](c *Comm, buf []T, src, tag int) (*Persistent, error) {
	if src != AnySource {
		if err := c.checkPeer(src); err != nil {
			return nil, c.session.fail("recv init", c, src, tag, 0, err)
		}
	}
	return &Persistent{func() (Request, error) { return Irecv(c, buf, src, tag) }}, nil
}
