package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// slow is when Run prints that it still waits.
const slow = 10 * time.Second

// Agent runs commands in other pods by way of its sidecar's process management.
type Agent struct {
	Socket string // path of the socket of process management
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
}

// Run runs a command to its end and returns its exit code. If ctx ends, the command is
// terminated.
func (a *Agent) Run(ctx context.Context, l Line) (int, error) {
	code, err := a.run(ctx, l)
	if err != nil && ctx.Err() != nil {
		return 0, fmt.Errorf("%s: the command is ended: %w", Host(l.Pod), context.Cause(ctx))
	}
	return code, err
}

func (a *Agent) run(ctx context.Context, l Line) (int, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", a.Socket)
	if err != nil {
		return 0, fmt.Errorf("process management of the sidecar: %w", err)
	}
	defer func() { _ = conn.Close() }() // the command's result is known
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintf(conn, "cmd=outrigger_exec pod=%d\n", l.Pod); err != nil {
		return 0, fmt.Errorf("process management of the sidecar: %w", err)
	}
	to := &writer{out: conn}
	_ = to.frame(kindCommand, []byte(l.Command)) // if the command is refused, the answer has the reason
	in := bufio.NewReader(conn)
	late := time.AfterFunc(slow, func() {
		_, _ = fmt.Fprintf(a.Err, "outrigger-ssh: %s does not answer yet: has its pod started?\n", Host(l.Pod))
	})
	err = awaitAnswer(in)
	late.Stop()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", Host(l.Pod), err)
	}
	room := make(chan struct{}, inputMax) // one token for each frame of input that may be sent
	for range inputMax {
		room <- struct{}{}
	}
	over := make(chan struct{})
	defer close(over)
	go a.feed(to, room, over) // ends with the input, or with the command
	code, err := a.follow(in, room)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", Host(l.Pod), err)
	}
	return code, nil
}

// awaitAnswer waits until a server has the command, or it is refused.
func awaitAnswer(in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the sidecar of this pod does not answer: %w", err)
	}
	if text, refused := strings.CutPrefix(line, "cmd=exec_result rc=-1 msg="); refused {
		return errors.New(strings.ReplaceAll(strings.TrimSpace(text), "_", " "))
	}
	if strings.TrimSpace(line) != "cmd=exec_result rc=0" {
		return fmt.Errorf("%w: the answer %q", errFrame, line)
	}
	return nil
}

// feed sends the input as fast as the command reads it. An error means that the connection
// has ended.
func (a *Agent) feed(to *writer, room <-chan struct{}, over <-chan struct{}) {
	b := make([]byte, dataMax)
	for {
		select {
		case <-room:
		case <-over:
			return
		}
		n, err := 0, error(nil)
		for n == 0 && err == nil {
			n, err = a.In.Read(b)
		}
		if n > 0 && to.frame(kindInput, b[:n]) != nil {
			return
		}
		if err != nil {
			_ = to.frame(kindInputEnd, nil) // as above
			return
		}
	}
}

// follow copies the command's output until the command ends.
func (a *Agent) follow(in io.Reader, room chan<- struct{}) (int, error) {
	for {
		kind, body, err := readFrame(in)
		if err != nil {
			return 0, fmt.Errorf("the connection to its launcher broke: %w", err)
		}
		switch kind {
		case kindOutput:
			_, err = a.Out.Write(body)
		case kindError:
			_, err = a.Err.Write(body)
		case kindTaken:
			select {
			case room <- struct{}{}:
			default: // more confirmations than frames of input
				return 0, fmt.Errorf("%w: %q without input", errFrame, kind)
			}
		case kindRefused:
			return 0, errors.New(string(body))
		case kindExit:
			if len(body) != 4 {
				return 0, fmt.Errorf("%w: an exit code of %d bytes", errFrame, len(body))
			}
			return int(binary.LittleEndian.Uint32(body)), nil
		default:
			return 0, fmt.Errorf("%w: %q from a server", errFrame, kind)
		}
		if err != nil {
			return 0, err
		}
	}
}
