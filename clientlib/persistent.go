package outrigger

import "fmt"

// Persistent is a send or receive that is started many times, one at a time.
type Persistent struct {
	comm      *Comm
	what      string
	peer, tag int
	start     func() (Request, error)
	last      Request
}

// Start starts the operation again. The request of the last start must have ended.
func (p *Persistent) Start() (Request, error) {
	if p.last.open() {
		return Request{}, p.comm.session.fail(p.what, p.comm, p.peer, p.tag, 0, fmt.Errorf("%w: started again before its last request has ended", ErrInvalid))
	}
	r, err := p.start()
	p.last = r
	return r, err
}

// SendInit prepares a send of buf.
func SendInit[T Number](c *Comm, buf []T, dst, tag int) (*Persistent, error) {
	if err := c.checkPeer(dst); err != nil {
		return nil, c.session.fail("send init", c, dst, tag, 0, err)
	}
	return &Persistent{comm: c, what: "isend", peer: dst, tag: tag, start: func() (Request, error) { return Isend(c, buf, dst, tag) }}, nil
}

// RecvInit prepares a receive into buf.
func RecvInit[T Number](c *Comm, buf []T, src, tag int) (*Persistent, error) {
	if src != AnySource {
		if err := c.checkPeer(src); err != nil {
			return nil, c.session.fail("recv init", c, src, tag, 0, err)
		}
	}
	return &Persistent{comm: c, what: "irecv", peer: src, tag: tag, start: func() (Request, error) { return Irecv(c, buf, src, tag) }}, nil
}
