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

// Starter runs a program that brings an mpirun or mpiexec of its own. The program
// runs once, in the first pod. Its mpirun starts daemons in the pods by
// outrigger-ssh instead of ssh, they start the ranks, which find each other as that
// MPI does, and each attaches to the sidecar of its pod by the rank that it was
// given. The other pods serve commands until the program has ended.
type Starter struct {
	family Family
	dir    string // with the provider
	bin    string // with the agent
	socket string // the sidecar's for applications
	Out    io.Writer
	Err    io.Writer
	// Notices are signals for the program, once it runs, and for no process that it has
	// started. nil: none come.
	Notices <-chan os.Signal
	// Signals are those for the program and all that is in its process group. nil: none come.
	Signals <-chan os.Signal

	job     place
	wished  []string // variables of what the job asks for
	daemons []string // the same for mpirun's daemons in this pod
	shared  *folder  // folder for memory that the ranks of this pod share
}

// agentFile is the program that mpirun starts instead of ssh.
const agentFile = "outrigger-ssh"

// starters are what MPIs call the program that starts ranks. Debian adds the MPI's
// name.
var starters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"}

// Starts reports whether a program with its arguments is an mpirun, calls one at once, as
// wrappers do (tini, numactl, env), or is said to call one.
func Starts(program []string) (bool, error) {
	switch said := os.Getenv(names.EnvMPIRun); said {
	case "":
		return wraps(program), nil
	case "0", "1":
		return said == "1", nil
	default:
		return false, fmt.Errorf("%s=%s: want 1 for a program that calls mpirun, or 0", names.EnvMPIRun, said)
	}
}

func isStarter(program string) bool { return slices.Contains(starters, filepath.Base(program)) }

// wraps reports whether the program is an mpirun, or has one among its arguments. An argument
// of a program that is linked to an MPI is its own.
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

// NewStarter makes one. socket is the sidecar's for applications, self the path of
// this program.
func NewStarter(f Family, socket, self string) (*Starter, error) {
	if f == Auto {
		f = unknown // an mpirun does not show what its ranks are linked to
	}
	dir, err := Folder(self)
	if err != nil {
		return nil, err
	}
	wished, err := wishes(f, dir)
	if err != nil {
		return nil, err
	}
	s := &Starter{family: f, dir: dir, wished: wished, bin: filepath.Dir(self), socket: socket, Out: os.Stdout, Err: os.Stderr}
	if _, err := os.Stat(s.agent()); err != nil {
		return nil, fmt.Errorf("what mpirun starts instead of ssh: %w", err)
	}
	if s.job, err = s.management().place(context.Background()); err != nil {
		return s, err
	}
	named, err := s.hostname()
	if err != nil {
		return s, err
	}
	s.daemons, err = wishes(f, dir, named...)
	return s, err
}

func (s *Starter) agent() string          { return filepath.Join(s.bin, agentFile) }
func (s *Starter) management() management { return management(s.socket + names.PMISuffix) }

// Run serves commands in this pod, and runs the program in the first, until that has
// ended; it returns the program's exit code there, and 0 elsewhere. If ctx ends, the ranks
// are told to end, and have the time that they take (drain).
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
		r := remote.Server{Socket: string(s.management()), Env: s.commands()}
		served <- r.Serve(serving)
		stop() // the sidecar has gone
	}()
	code, err := s.part(ctx, serving, program)
	stop()
	failed := <-served
	switch {
	case ctx.Err() != nil:
		return cmp.Or(code, told), nil
	case failed != nil:
		return 0, failed // what follows from it says less
	}
	return code, err
}

// told is the exit code of who was told to end, as a shell says it.
const told = 128 + int(unix.SIGTERM)

// part is what this pod does while it serves; asked ends if it is told to end.
func (s *Starter) part(asked, ctx context.Context, program []string) (int, error) {
	if s.job.pod != 0 {
		if err := s.meet(ctx); err != nil {
			return 0, err
		}
		return 0, s.judge(program[0])
	}
	code, err := s.start(ctx, program)
	if asked.Err() != nil { // the others, which were told, too, need not wait
		soon, cancel := context.WithTimeout(ctx, drainNone)
		defer cancel()
		_ = s.meet(soon) // a pod that was not told, or has gone, does not come
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
	env, err := s.program(hosts)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, s.Out, s.Err
	// A group of its own: what is sent to this process's is for this process to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) } // the launcher kills what stays
	if err = cmd.Start(); err == nil {
		ended := make(chan struct{})
		go s.passOn(cmd.Process, ended)
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

// passOn gives the program the signals that come for it until it has ended.
func (s *Starter) passOn(program *os.Process, ended <-chan struct{}) {
	for {
		select {
		case n := <-s.Notices:
			_ = program.Signal(n) // it may just have ended
		case n := <-s.Signals:
			if sig, ok := n.(syscall.Signal); ok {
				_ = unix.Kill(-program.Pid, sig) // as above
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

// judge says whether the ranks of this pod were started, and used Outrigger.
func (s *Starter) judge(program string) error {
	for rank := s.job.first; rank < s.job.first+s.job.ranks(); rank++ {
		f, err := s.management().fate(context.Background(), rank)
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
