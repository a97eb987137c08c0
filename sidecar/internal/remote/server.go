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

// dialTimeout bounds the dial of a socket of this pod.
const dialTimeout = 10 * time.Second

// grace is the time between SIGTERM and SIGKILL for a command whose agent has gone.
const grace = 2 * time.Second

// Server runs commands of other pods in this pod.
type Server struct {
	Socket string   // path of the socket of process management
	Env    []string // complete environment of the commands
}

// Serve runs commands, as many at once as are requested, until ctx ends; then it terminates
// the running ones and returns nil. Otherwise it returns the error of the connection to the
// sidecar.
func (s *Server) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, in, err := s.offer(ctx)
		switch {
		case ctx.Err() != nil && err == nil:
			_ = conn.Close() // the agent notices the end
			return nil
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		wg.Go(func() {
			defer func() { _ = conn.Close() }() // the agent has received the answer
			s.serve(ctx, conn, in)
		})
	}
}

// offer waits for a command.
func (s *Server) offer(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	d := net.Dialer{Timeout: dialTimeout}
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
		_ = conn.Close() // it carries no command
		return nil, nil, fmt.Errorf("process management of the sidecar: %w", err)
	}
	return conn, in, nil
}

// serve runs one command to its end, or until its agent has gone.
func (s *Server) serve(ctx context.Context, conn net.Conn, in *bufio.Reader) {
	to := &writer{out: conn}
	defer context.AfterFunc(ctx, func() { // an agent that reads nothing is not waited for
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
		_ = to.frame(kindRefused, []byte(err.Error())) // an agent that has gone needs no reason
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
		defer func() { _ = w.Close() }() // also if the command was never started
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
	_, _ = cmd.Stdout.(*os.File).Close(), cmd.Stderr.(*os.File).Close() // the command has its own copies

	go func() { // until the end of the connection, which serve causes
		defer cancel() // the agent of the command has gone
		feed(in, stdin, to)
	}()
	// Daemons that the command leaves behind live on, as they do below an sshd: the
	// launcher ends them with the job.
	if err = cmd.Wait(); cmd.ProcessState == nil {
		return err
	}
	output.finish()
	return to.frame(kindExit, binary.LittleEndian.AppendUint32(nil, uint32(ExitCode(cmd.ProcessState))))
}

// feed passes input to a command. It returns when the agent has gone, or sends an invalid
// frame, also while the command reads nothing.
func feed(in io.Reader, stdin io.WriteCloser, to *writer) {
	pieces := make(chan []byte, inputMax+1) // the frames in progress, and the end
	defer close(pieces)
	go func() {
		defer func() { _ = stdin.Close() }() // the command may have ended
		for b := range pieces {
			if b == nil {
				return
			}
			_, _ = stdin.Write(b) // a command that has closed its input needs no more
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
		default: // more than an agent may send
			return
		}
	}
}

// ExitCode returns the exit code as a shell reports it: 128 plus the signal's number for a
// signal.
func ExitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
