package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A launcher asks its sidecar on a socket of its own, which exists from the sidecar's start
// on, and in pods without an MPI, too. Each connection carries one request.
//
//	cmd=outrigger_wait           when may the ranks be started?
//	cmd=outrigger_waits TEXT     not yet: what the sidecar waits for; repeated
//	cmd=outrigger_wait rc=0      now
//
// The other requests are those of process management that do not depend on MPI:
// outrigger_state, outrigger_ended, outrigger_failed and outrigger_aborts. A sidecar that
// is not ready answers none of them.

// waitPause is the time between two answers to a launcher that waits: a launcher gives up
// on a sidecar that sends nothing.
const waitPause = time.Second

var errStarts = errors.New("the sidecar is not ready")

// ServeLauncher serves launchers until l is closed.
func (s *Server) ServeLauncher(l net.Listener) error { return s.acceptFrom(l, true) }

// question serves the one request of a launcher's connection.
func (s *Server) question(c *client) error {
	line, err := bufio.NewReaderSize(c.conn, lineMax).ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("%w: longer than %d bytes", errLine, lineMax)
	case err != nil:
		return err
	}
	r, err := parse(string(line[:len(line)-1]))
	if err != nil {
		return err
	}
	switch r.cmd {
	case "outrigger_wait":
		return s.wait(c)
	case "outrigger_state", "outrigger_ended", "outrigger_failed", "outrigger_aborts":
		if _, ready, _ := s.state(); !ready {
			return errStarts
		}
		err := s.handle(c, r)
		if err == nil && r.cmd == "outrigger_aborts" {
			_, _ = c.conn.Read(make([]byte, 1)) // returns when the launcher has gone
		}
		return err
	}
	return fmt.Errorf("%w: %q of a launcher", errLine, r.cmd)
}

func (s *Server) state() (awaits string, ready bool, changed <-chan struct{}) {
	if s.cfg.State == nil {
		return "", true, nil
	}
	return s.cfg.State()
}

// wait sends what the sidecar waits for until it is ready. If the launcher has gone, the
// next send fails.
func (s *Server) wait(c *client) error {
	c.slot.MarkActive()
	for {
		awaits, ready, changed := s.state()
		if ready {
			return c.send("cmd=outrigger_wait rc=0")
		}
		if c.send("cmd=outrigger_waits %s", awaits) != nil {
			return nil // the launcher has gone, or its connection was closed to admit another one
		}
		pause := time.NewTimer(waitPause)
		select {
		case <-changed:
		case <-pause.C:
		case <-s.ctx.Done():
			pause.Stop()
			return nil
		}
		pause.Stop()
	}
}
