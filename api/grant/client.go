package grant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Refused is what the agent's refusals are, for errors.As.
type Refused struct {
	Op    Op
	Cause string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("the node's agent refused %s: %s", r.Op, r.Cause)
}

// Client is a sidecar's connection to the agent. It is for one goroutine.
type Client struct {
	conn    *net.UnixConn
	waiting []Peer // events that came while an answer was awaited; the agent bounds them (§5)
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

// Close ends the connection and closes what was not accepted.
func (c *Client) Close() error {
	errs := []error{c.conn.Close()}
	for _, p := range c.waiting {
		errs = append(errs, p.Conn.Close())
	}
	c.waiting = nil
	return errors.Join(errs...)
}

// Memlock raises this process's limit of locked memory to n bytes, or to the
// node's bound. It gives the limit that holds now.
func (c *Client) Memlock(n uint64) (uint64, error) {
	m, _, err := c.ask(&Message{Op: Memlock, Bytes: n})
	if err != nil {
		return 0, err
	}
	return m.Bytes, nil
}

// Join makes this connection the way to pod's sidecar for the others of the
// job.
func (c *Client) Join(pod int) error {
	_, _, err := c.ask(&Message{Op: Join, Pod: pod})
	return err
}

// Connect gives a connection to the sidecar of a pod on the same node. A
// Refused error says that there is none.
func (c *Client) Connect(pod int) (*os.File, error) {
	_, f, err := c.ask(&Message{Op: Connect, Pod: pod})
	if err == nil && f == nil {
		err = errors.New("the node's agent answered connect without a descriptor")
	}
	return f, err
}

// Accept waits for a connection that another sidecar of the job has asked for.
func (c *Client) Accept() (Peer, error) {
	if len(c.waiting) > 0 {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		return p, nil
	}
	m, f, err := Receive(c.conn)
	if err != nil {
		return Peer{}, err
	}
	if m.Op != Incoming || f == nil {
		return Peer{}, errors.Join(fmt.Errorf("the node's agent said %q out of turn", m.Op), closeFile(f))
	}
	return Peer{Pod: m.Pod, Conn: f}, nil
}

// ask sends a request and waits for its answer; events before it wait for
// Accept.
func (c *Client) ask(m *Message) (*Message, *os.File, error) {
	m.Version = Version
	if err := Send(c.conn, m, nil); err != nil {
		return nil, nil, fmt.Errorf("asking the node's agent for %s: %w", m.Op, err)
	}
	for {
		answer, f, err := Receive(c.conn)
		if err != nil {
			return nil, nil, fmt.Errorf("the node's agent's answer to %s: %w", m.Op, err)
		}
		switch {
		case answer.Op == Incoming && f != nil:
			c.waiting = append(c.waiting, Peer{Pod: answer.Pod, Conn: f})
		case answer.Op != m.Op:
			return nil, nil, errors.Join(fmt.Errorf("the node's agent answered %q to %q", answer.Op, m.Op), closeFile(f))
		case answer.Error != "":
			return nil, nil, errors.Join(&Refused{Op: m.Op, Cause: answer.Error}, closeFile(f))
		default:
			return answer, f, nil
		}
	}
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// Send writes a message, with a descriptor when f is not nil.
func Send(conn *net.UnixConn, m *Message, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := conn.WriteMsgUnix(m.Encode(), rights, nil)
	return err
}

// Receive reads a message and the descriptor that came with it, if any. What
// the other side sends beyond one descriptor is closed. io.EOF is the end.
func Receive(conn *net.UnixConn) (*Message, *os.File, error) {
	text, rights := make([]byte, MessageMax+1), make([]byte, unix.CmsgSpace(4*4))
	n, rn, flags, _, err := conn.ReadMsgUnix(text, rights)
	files, rightsErr := descriptors(rights[:rn])
	switch {
	case err != nil:
		return nil, nil, errors.Join(err, drop(files))
	case n == 0:
		return nil, nil, errors.Join(io.EOF, drop(files))
	case rightsErr != nil, flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0, len(files) > 1:
		return nil, nil, errors.Join(fmt.Errorf("%w: too long, or too many descriptors", ErrMessage), drop(files))
	}
	m, err := Parse(text[:n])
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", ErrMessage, err), drop(files))
	}
	if len(files) == 1 {
		return m, files[0], nil
	}
	return m, nil, nil
}

// ErrMessage is a message that breaks the protocol.
var ErrMessage = errors.New("bad message")

func descriptors(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials or the like, which nobody asked for
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "granted"))
		}
	}
	return files, nil
}

func drop(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
