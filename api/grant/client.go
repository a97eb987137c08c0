package grant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Refused is the error of a request that the agent has refused, for errors.As.
type Refused struct {
	Op    Op
	Cause string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("the node's agent refused %s: %s", r.Op, r.Cause)
}

// waitingMax bounds the connections that wait for Accept. Further ones are closed, which their
// other ends see.
const waitingMax = 64

// Client is a sidecar's connection to the agent. Only one goroutine may use it. After an error
// that is not a Refused, or after the context of a call has ended, requests and answers may no
// longer correspond: call Close and dial again.
type Client struct {
	conn    *net.UnixConn
	waiting []Peer // events that arrived before an expected answer
}

// Peer is a connection to another sidecar of the job.
type Peer struct {
	Pod  int
	Conn *os.File // a stream socket; the receiver owns it
}

// Dial connects to the agent.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, fmt.Errorf("the node's agent: %w", err)
	}
	return &Client{conn: c.(*net.UnixConn)}, nil
}

// Close ends the connection and closes the connections that were not accepted.
func (c *Client) Close() error {
	errs := []error{c.conn.Close()}
	for _, p := range c.waiting {
		errs = append(errs, p.Conn.Close())
	}
	c.waiting = nil
	return errors.Join(errs...)
}

// Memlock raises this process's limit of locked memory to n bytes, or to the node's bound. It
// returns the resulting limit in bytes (§3.1).
func (c *Client) Memlock(ctx context.Context, n uint64) (uint64, error) {
	m, _, err := c.ask(ctx, &Message{Op: Memlock, Bytes: n}, nil)
	if err != nil {
		return 0, err
	}
	return m.Bytes, nil
}

// Join registers this connection as the one by which other sidecars of the job reach the
// sidecar of pod (§3.2).
func (c *Client) Join(ctx context.Context, pod int) error {
	_, _, err := c.ask(ctx, &Message{Op: Join, Pod: pod}, nil)
	return err
}

// Connect returns a connection to the sidecar of a pod on the same node (§3.3). The error is a
// Refused if there is no such sidecar.
func (c *Client) Connect(ctx context.Context, pod int) (*os.File, error) {
	_, f, err := c.ask(ctx, &Message{Op: Connect, Pod: pod}, nil)
	if err == nil && f == nil {
		err = errors.New("the node's agent answered connect without a descriptor")
	}
	return f, err
}

// Accept waits for a connection that another sidecar of the job has requested (§3.4).
func (c *Client) Accept(ctx context.Context) (Peer, error) {
	if len(c.waiting) > 0 {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		return p, nil
	}
	defer c.within(ctx)()
	m, f, err := Receive(c.conn)
	switch {
	case err != nil:
		return Peer{}, errors.Join(context.Cause(ctx), err)
	case m.Op == End:
		return Peer{}, errors.Join(&Refused{Op: Join, Cause: m.Error}, closeFile(f))
	case m.Op != Incoming || f == nil:
		return Peer{}, errors.Join(fmt.Errorf("the node's agent said %q out of turn", m.Op), closeFile(f))
	}
	return Peer{Pod: m.Pod, Conn: f}, nil
}

// within makes reads and writes end when the context ends, until the returned function is
// called.
func (c *Client) within(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // an error means that the connection is closed, which also ends them
}

// ask sends a request, with a descriptor if with is not nil, and waits for its answer. Events
// that arrive before the answer are kept for Accept. If a request cannot be sent, the agent may have refused the connection already:
// it sends the reason before it closes the connection.
func (c *Client) ask(ctx context.Context, m *Message, with *os.File) (*Message, *os.File, error) {
	defer c.within(ctx)()
	m.Version = Version
	sent := Send(c.conn, m, with)
	for {
		answer, f, err := Receive(c.conn)
		if err != nil {
			return nil, nil, fmt.Errorf("asking the node's agent for %s: %w", m.Op, errors.Join(context.Cause(ctx), sent, err))
		}
		switch {
		case answer.Op == Incoming && f != nil:
			err = c.queuePeer(Peer{Pod: answer.Pod, Conn: f})
		case answer.Op == End, answer.Op == m.Op && answer.Error != "":
			return nil, nil, errors.Join(&Refused{Op: m.Op, Cause: answer.Error}, closeFile(f))
		case answer.Op != m.Op:
			err = errors.Join(fmt.Errorf("the node's agent answered %q to %q", answer.Op, m.Op), closeFile(f))
		default:
			return answer, f, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// queuePeer keeps a connection for Accept. It closes the connection if waitingMax are waiting.
func (c *Client) queuePeer(p Peer) error {
	if len(c.waiting) >= waitingMax {
		return p.Conn.Close()
	}
	c.waiting = append(c.waiting, p)
	return nil
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
