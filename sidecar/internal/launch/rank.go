package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// run starts a rank, waits for its end, and reports it.
func (p *pod) run(ctx, judging context.Context, rank int, path string) {
	// Linux sends the death signal when the thread that forked ends, so the goroutine keeps
	// its thread until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := time.Now() // before start: a rank may connect to its sidecar before start returns
	cmd, err := p.start(ctx, rank, path)
	if err = Advise(err); err != nil {
		p.reportUnstarted(rank, exitNotExecutable, err)
		return
	}
	p.report(&Event{Event: "started", Rank: rank, PID: cmd.Process.Pid, Time: begun})
	awaitEnd(cmd.Process.Pid)
	if p.cfg.awaited != nil {
		p.cfg.awaited()
	}
	e := &Event{Event: "exited", Rank: rank, Time: time.Now()}
	state, told, err := p.reap(rank, cmd.Process)
	if err != nil {
		e.Code, e.Reason = 1, err.Error()
	} else if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
		e.Code, e.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
		e.Told = told.sent(ws.Signal())
		e.Hint = hint(ws.Signal(), sharedMemory)
	} else {
		e.Code = ws.ExitStatus()
	}
	if told.aborts != 0 {
		e.Code, e.Signal, e.Told, e.Aborts = told.aborts, "", false, true
	}
	if told.lost {
		e.Told, e.Code = true, cmp.Or(e.Code, exitTerminated)
	}
	if e.Code == 0 && p.cfg.Judge != nil {
		if err := p.cfg.Judge(judging, rank); err != nil {
			e.Code, e.Judged, e.Reason = 1, true, err.Error()
		}
	}
	if e.Code != 0 {
		e.Event, e.Clue = "failed", p.clue(rank).text()
		e.Told = (e.Told || told.end) && !e.Aborts
		p.announce(e)
		p.fail(e)
		return
	}
	p.report(e)
}

// awaitEnd waits until a child has ended, and does not reap it.
func awaitEnd(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// reap kills the process group of a rank that has ended, and then reaps the rank: until it
// is reaped, its PID, which is also the group's, is not reused. No signal is sent to that
// PID afterwards. It returns the orders that the rank had received when it ended.
func (p *pod) reap(rank int, proc *os.Process) (*os.ProcessState, *orders, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.killGroup(proc.Pid)
	p.noteOrders(p.procs[rank])
	told := p.procs[rank].orders
	delete(p.procs, rank)
	state, err := proc.Wait()
	return state, told, err
}

// killGroup ends a process group.
func killGroup(id int) { _ = unix.Kill(-id, unix.SIGKILL) } // the rank may have been its only member

// start starts a rank's process in a group of its own.
func (p *pod) start(ctx context.Context, rank int, path string) (*exec.Cmd, error) {
	cmd := exec.Command(path, p.cfg.Program[1:]...)
	cmd.Env = append(append(os.Environ(), p.cfg.Env...),
		names.EnvSocket+"="+p.cfg.Socket, fmt.Sprintf("%s=%d", names.EnvRank, rank))
	if p.cfg.Dress != nil {
		env, files, err := p.cfg.Dress(ctx, rank)
		if err != nil {
			return nil, err
		}
		defer closeFiles(files)
		cmd.Env, cmd.ExtraFiles = append(cmd.Env, env...), files
	}
	if rank == 0 && p.cfg.Stdin != nil { // a nil *os.File in an interface is not nil
		cmd.Stdin = p.cfg.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		_, _ = outRead.Close(), outWrite.Close() // unused
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = outWrite, errWrite
	// p.mu is held for both steps, so that reapOrphans and signal see a started process in p.procs.
	p.mu.Lock()
	if err = cmd.Start(); err == nil {
		p.procs[rank] = &running{Process: cmd.Process}
		p.pipes = append(p.pipes, outRead, errRead)
		if p.ending != 0 {
			_ = unix.Kill(-cmd.Process.Pid, p.ending) // the other ranks have received it already
		}
	}
	p.mu.Unlock()
	_, _ = outWrite.Close(), errWrite.Close() // the child has its own copies
	if err != nil {
		_, _ = outRead.Close(), errRead.Close() // no process has the write ends
		return nil, err
	}
	c := p.newClue(rank)
	p.copies.Go(func() { p.copyOutput(rank, outRead, p.out, nil) })
	p.copies.Go(func() { p.copyOutput(rank, errRead, p.err, c) })
	return cmd, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // the rank has its own copies
	}
}
