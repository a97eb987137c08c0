package mpi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/remote"
)

// Starter runs a program that brings an mpirun or mpiexec of its own. The program runs
// once, in the first pod. Its mpirun starts daemons in the pods by outrigger-ssh instead of
// ssh; the daemons start the ranks, which meet as that MPI does; and each rank attaches to
// the sidecar of its pod with the rank number that it has received. The other pods serve
// commands until the program has ended.
type Starter struct {
	family Family
	dir    string // directory of the provider
	bin    string // directory of the agent
	socket string // the sidecar's socket for applications
	Out    io.Writer
	Err    io.Writer
	// Notices are signals for the program while it runs, and not for processes that it has
	// started. It may be nil.
	Notices <-chan os.Signal
	// Signals are signals for the program and all processes of its group. It may be nil.
	Signals <-chan os.Signal

	job     position
	extra   []string // variables of the job's settings
	daemons []string // variables of the job's settings for mpirun's daemons in this pod
	shared  *folder  // directory for memory that the ranks of this pod share
}

// agentFile is the program that mpirun starts instead of ssh.
const agentFile = "outrigger-ssh"

// starters are the names of MPI programs that start ranks. Debian appends the MPI's name.
var starters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"}

// Starts reports whether a program with its arguments is an mpirun, runs one at once, as
// wrappers do (tini, numactl, env), or is marked as one that calls mpirun.
func Starts(program []string) (bool, error) {
	switch given := os.Getenv(names.EnvMPIRun); given {
	case "":
		return wraps(program), nil
	case "0", "1":
		return given == "1", nil
	default:
		return false, fmt.Errorf("%s=%s: want 1 for a program that calls mpirun, or 0", names.EnvMPIRun, given)
	}
}

func isStarter(program string) bool { return slices.Contains(starters, filepath.Base(program)) }

// wraps reports whether the program is an mpirun, or has one among its arguments. Arguments
// of a program that is linked to an MPI do not count: they are its own.
func wraps(program []string) bool {
	if isStarter(program[0]) {
		return true
	}
	if path, err := exec.LookPath(program[0]); err != nil {
		return false
	} else if _, linked := Linked(path); linked {
		return false
	}
	return slices.ContainsFunc(program[1:], isStarter)
}

// NewStarter returns a Starter. socket is the sidecar's socket for applications, self the
// path of this program.
func NewStarter(f Family, socket, self string) (*Starter, error) {
	if f == Auto {
		f = unknown // an mpirun does not show to which MPI its ranks are linked
	}
	dir, err := Folder(self)
	if err != nil {
		return nil, err
	}
	extra, err := settings(f, dir)
	if err != nil {
		return nil, err
	}
	s := &Starter{family: f, dir: dir, extra: extra, bin: filepath.Dir(self), socket: socket, Out: os.Stdout, Err: os.Stderr}
	if _, err := os.Stat(s.agent()); err != nil {
		return nil, fmt.Errorf("program that mpirun starts instead of ssh: %w", err)
	}
	if s.job, err = s.management().position(context.Background()); err != nil {
		return s, err
	}
	named, err := s.hostname()
	if err != nil {
		return s, err
	}
	s.daemons, err = settings(f, dir, named...)
	return s, err
}

func (s *Starter) agent() string          { return filepath.Join(s.bin, agentFile) }
func (s *Starter) management() management { return management(s.socket + names.PMISuffix) }

// Run serves commands in this pod, and in the first pod runs the program, until the program
// has ended. It returns the program's exit code in the first pod, and 0 elsewhere. If ctx
// ends, the ranks receive SIGTERM, and may take their time (drain).
func (s *Starter) Run(ctx context.Context, program []string) (int, error) {
	var err error
	if s.shared, err = sharedFolder(prefixMPIRun, s.job.here()); err != nil {
		return 0, err
	}
	defer func() { _ = s.shared.remove() }()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { s.drain(serving, stop) })()
	served := make(chan error, 1)
	go func() {
		r := remote.Server{Socket: string(s.management()), Env: s.commandEnv()}
		served <- r.Serve(serving)
		stop() // the sidecar has gone
	}()
	code, err := s.runPart(ctx, serving, program)
	stop()
	failed := <-served
	switch {
	case ctx.Err() != nil:
		return cmp.Or(code, exitTerminated), nil
	case failed != nil:
		return 0, failed // the error of the program follows from it
	}
	return code, err
}

// exitTerminated is the exit code of a program that was ended by SIGTERM, as in a shell.
const exitTerminated = 128 + int(unix.SIGTERM)

// runPart does the part of this pod while it serves commands; asked ends on SIGTERM.
func (s *Starter) runPart(asked, ctx context.Context, program []string) (int, error) {
	if s.job.pod != 0 {
		if err := s.meet(ctx); err != nil {
			return 0, err
		}
		return 0, s.judge(program[0])
	}
	code, err := s.start(ctx, program)
	if asked.Err() != nil { // the other pods got SIGTERM as well, and should not wait long
		soon, cancel := context.WithTimeout(ctx, drainGrace)
		defer cancel()
		_ = s.meet(soon) // fails if a pod did not get SIGTERM, or has ended
		return code, err
	}
	if err != nil || code != 0 {
		return code, err
	}
	if err := s.judge(program[0]); err != nil {
		return 0, err
	}
	return 0, s.meet(ctx)
}

// start runs the program to its end.
func (s *Starter) start(ctx context.Context, program []string) (int, error) {
	hosts, err := os.MkdirTemp("", "outrigger-hosts-")
	if err != nil {
		return 0, fmt.Errorf("the list of hosts for mpirun: %w; the container needs a /tmp that it may write to, or TMPDIR", err)
	}
	defer os.RemoveAll(hosts)
	env, err := s.programEnv(hosts)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, s.Out, s.Err
	// A group of its own: this process forwards the signals that its own group receives.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) } // the launcher kills the remaining processes
	if err = cmd.Start(); err == nil {
		ended := make(chan struct{})
		go s.forward(cmd.Process, ended)
		err = cmd.Wait()
		close(ended)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if cmd.ProcessState == nil {
		return 0, err
	}
	return remote.ExitCode(cmd.ProcessState), nil
}

// forward sends the program the signals that arrive for it until it has ended.
func (s *Starter) forward(program *os.Process, ended <-chan struct{}) {
	for {
		select {
		case n := <-s.Notices:
			_ = program.Signal(n) // it may just have ended
		case n := <-s.Signals:
			if sig, ok := n.(syscall.Signal); ok {
				_ = unix.Kill(-program.Pid, sig) // the processes may just have ended
			}
		case <-ended:
			return
		}
	}
}

// meet waits until all pods do: the first one when the program has ended.
func (s *Starter) meet(ctx context.Context) error {
	if _, err := s.management().fence(ctx, s.job.ranks(), nil); err != nil {
		return fmt.Errorf("waiting for the end of mpirun in pod 0: %w", err)
	}
	return nil
}

// judge returns an error if a rank of this pod was not started, or has not used Outrigger.
func (s *Starter) judge(program string) error {
	for rank := s.job.first; rank < s.job.first+s.job.ranks(); rank++ {
		f, err := s.management().rankResult(context.Background(), rank)
		if err != nil {
			return err
		}
		if !f.attached {
			n := s.job.world()
			return fmt.Errorf("%w: %s ended well, but rank %d never attached: it has to start %d ranks (-n %d), and their MPI has to be built with libfabric (docs/mpi.md)", ErrUnused, filepath.Base(program), rank, n, n)
		}
	}
	return nil
}
