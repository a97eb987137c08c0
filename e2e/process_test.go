package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// process is a program that a test starts and watches, as a kubelet does.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when it has ended
}

// spawn starts one of the programs, or the one at an absolute path.
func spawn(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	return spawnAs(t, nil, env, program, args...)
}

// spawnAs starts it with another user, or in other namespaces.
func spawnAs(t *testing.T, attr *syscall.SysProcAttr, env []string, program string, args ...string) *process {
	t.Helper()
	path := program
	if !filepath.IsAbs(program) {
		path = filepath.Join(bin, program)
	}
	p := &process{t: t, name: filepath.Base(program), out: new(output), done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	p.cmd.SysProcAttr = attr
	p.cmd.Env = append(p.cmd.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }() // the state is looked at
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

func (p *process) signal(s unix.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.out)
	}
}

// wait waits for the end, and compares the exit code; -1 for a signal.
func (p *process) wait(code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(jobTime):
		p.t.Fatalf("%s has not ended\n%s", p.name, p.out)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Fatalf("%s: exit code %d, want %d\n%s", p.name, got, code, p.out)
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits until the output has text.
func (p *process) says(text string) {
	p.t.Helper()
	for end := time.Now().Add(jobTime); !strings.Contains(p.out.String(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || p.ended() && !strings.Contains(p.out.String(), text) {
			p.t.Fatalf("%s does not say %q\n%s", p.name, text, p.out)
		}
	}
}

// pod is a pod of the job, with the files and processes that it has on a cluster.
type pod struct {
	h                  *hand
	number             int
	sidecar, ranks     *process
	sidecarLog, rankIn string
	sidecarAs, ranksAs *syscall.SysProcAttr
}

func (h *hand) pod(number int) *pod {
	return &pod{h: h, number: number, sidecarLog: fmt.Sprintf("%s/sidecar-log%d", h.dir, number), rankIn: fmt.Sprintf("%s/rank-log%d", h.dir, number)}
}

// startSidecar starts, or starts again, the pod's sidecar.
func (p *pod) startSidecar(flags ...string) *process {
	h := p.h
	args := []string{
		"--bootstrap", h.dir + "/bootstrap.json", "--pod", fmt.Sprint(p.number), "--socket", h.socket(p.number), "--listen", h.listen[p.number],
		"--termination-log", p.sidecarLog, "--once", fmt.Sprintf("%s/once%d", h.dir, p.number), "--app-uid", "any",
	}
	p.sidecar = spawnAs(h.t, p.sidecarAs, nil, "outrigger-sidecar", append(args, flags...)...)
	return p.sidecar
}

// startRanks starts the pod's application; all pods have as many ranks as the
// first.
func (p *pod) startRanks(launcher string, program ...string) *process {
	h := p.h
	args := []string{
		"--socket", h.socket(p.number), "--pod", fmt.Sprint(p.number), "--ranks-per-pod", fmt.Sprint(h.doc.Pods[0].Ranks),
		"--world", fmt.Sprint(h.doc.Ranks), "--termination-log", p.rankIn, "--",
	}
	p.ranks = spawnAs(h.t, p.ranksAs, nil, launcher, append(args, program...)...)
	return p.ranks
}

// lastWords reads a termination message.
func lastWords(t *testing.T, path string) *podlife.Message {
	t.Helper()
	m, err := podlife.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// report returns the state of the pod as the operator would read it.
func (p *pod) report() podlife.Report {
	where := p.h.doc.Pods[p.number]
	return podlife.Report{
		Pod: p.number, FirstRank: where.FirstRank, Ranks: where.Ranks,
		Launcher: lastWords(p.h.t, p.rankIn), Sidecar: lastWords(p.h.t, p.sidecarLog),
	}
}
