package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the dial of a socket of this pod.
const patience = 10 * time.Second

// grace is what a command gets between SIGTERM and SIGKILL when nobody waits for it
// any more.
const grace = 2 * time.Second

// Server runs commands of other pods in this one.
type Server struct {
	Socket string   // of process management
	Env    []string // of the commands, whole
}

// Serve runs commands, as many at once as are asked for, until ctx ends; then it
// ends those that run and returns nil. Another error is that of the sidecar.
func (s *Server) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, in, err := s.offer(ctx)
		switch {
		case ctx.Err() != nil && err == nil:
			_ = conn.Close() // its agent is told by that
			return nil
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		wg.Go(func() {
			defer func() { _ = conn.Close() }() // the agent has had its answer
			s.serve(ctx, conn, in)
		})
	}
}

// offer waits until somebody wants a command to be run.
func (s *Server) offer(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	d := net.Dialer{Timeout: patience}
	conn, err := d.DialContext(ctx, "unix", s.Socket)
	if err != nil {
		return nil, nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	in := bufio.NewReader(conn)
	if _, err = fmt.Fprintln(conn, "cmd=outrigger_serve"); err == nil {
		var line string
		if line, err = in.ReadString('\n'); err == nil && strings.TrimSpace(line) != "cmd=exec" {
			err = fmt.Errorf("%w: %q", errFrame, line)
		}
	}
	if err != nil {
		_ = conn.Close() // nobody has it
		return nil, nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	return conn, in, nil
}

// serve runs one command to its end, or until its agent has gone.
func (s *Server) serve(ctx context.Context, conn net.Conn, in *bufio.Reader) {
	to := &writer{out: conn}
	defer context.AfterFunc(ctx, func() { // an agent that takes nothing is not waited for
		_ = conn.SetWriteDeadline(time.Now().Add(grace))
	})()
	kind, body, err := readFrame(in)
	if err == nil && kind != kindCommand {
		err = fmt.Errorf("%w: %q before a command", errFrame, kind)
	}
	if err == nil {
		err = s.run(ctx, string(body), to, in)
	}
	if err != nil {
		_ = to.frame(kindRefused, []byte(err.Error())) // an agent that has gone asks for nothing
	}
}

func (s *Server) run(ctx context.Context, command string, to *writer, in *bufio.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = s.Env
	var output outputs
	defer output.finish()
	for kind, at := range map[byte]*io.Writer{kindOutput: &cmd.Stdout, kindError: &cmd.Stderr} {
		w, err := output.add(stream{to, kind})
		if err != nil {
			return err
		}
		defer func() { _ = w.Close() }() // also where the command was never started
		*at = w
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = grace
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return errors.New("there is no /bin/sh in the application's image, by which mpirun's daemons are started; start the ranks without mpirun instead")
		}
		return err
	}
	_, _ = cmd.Stdout.(*os.File).Close(), cmd.Stderr.(*os.File).Close() // the command has its own

	go func() { // until the connection's end, which serve makes
		defer cancel() // nobody waits for the command any more
		feed(in, stdin, to)
	}()
	// Daemons that it leaves behind live on, as below an sshd: the launcher ends
	// them with the job.
	if err = cmd.Wait(); cmd.ProcessState == nil {
		return err
	}
	output.finish()
	return to.frame(kindExit, binary.LittleEndian.AppendUint32(nil, uint32(ExitCode(cmd.ProcessState))))
}

// feed gives a command its input. It returns when the agent has gone, or says what
// no agent says, also while the command reads nothing.
func feed(in io.Reader, stdin io.WriteCloser, to *writer) {
	pieces := make(chan []byte, inputMax+1) // and the end
	defer close(pieces)
	go func() {
		defer func() { _ = stdin.Close() }() // the command may have ended
		for b := range pieces {
			if b == nil {
				return
			}
			_, _ = stdin.Write(b) // a command that has closed its input wants no more
			if to.frame(kindTaken, nil) != nil {
				return
			}
		}
	}()
	for {
		kind, body, err := readFrame(in)
		if err != nil || kind == kindInput && len(body) == 0 || kind != kindInput && kind != kindInputEnd {
			return
		}
		if kind == kindInputEnd {
			body = nil
		}
		select {
		case pieces <- body:
		default: // more than an agent has under way
			return
		}
	}
}

// ExitCode is a shell's: 128 and the signal's number for a signal.
func ExitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
