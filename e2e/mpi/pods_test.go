//go:build mpi

package mpi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// pods are sidecars that continue when their job has failed, as in a cluster, with ranks that the
// test starts itself.
type pods struct {
	t        *testing.T
	dir      string
	doc      *bootstrap.Document
	sidecars []*exec.Cmd
	before   []int // open descriptors of each sidecar before the first rank
}

// startPods starts a sidecar for each number of ranks, whose arenas are small.
func startPods(t *testing.T, ranks ...int) *pods {
	t.Helper()
	return startPodsWithArenas(t, 16<<20, ranks...)
}

func startPodsWithArenas(t *testing.T, arenaBytes int64, ranks ...int) *pods {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpi-") //nolint:usetesting // socket paths are short; t.TempDir's need not be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	p := &pods{t: t, dir: dir, doc: &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "by hand", ID: fmt.Sprintf("%016x", rand.Uint64())},
		TLS:    bootstrap.TLS{CAFile: dir + "/ca", CertFile: dir + "/cert%d", KeyFile: dir + "/key%d"},
		Memory: bootstrap.Memory{ArenaBytes: arenaBytes},
	}}
	p.describe(ranks)
	for i := range p.doc.Pods {
		p.sidecar(i)
	}
	for i := range p.doc.Pods {
		// A sidecar that is ready has opened all descriptors that it keeps open.
		p.await(fmt.Sprintf("sidecar %d", i), func() bool { return strings.HasPrefix(p.get(i, "/readyz"), "200") })
		p.before = append(p.before, len(p.descriptors(i)))
	}
	return p
}

// describe writes the job's document and certificates.
func (p *pods) describe(ranks []int) {
	p.t.Helper()
	a, err := pki.New(p.doc.Job.ID, time.Hour)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("ca", a.CA())
	for i, n := range ranks {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // only reserves the address
		leaf, err := a.Leaf(i)
		if err != nil {
			p.t.Fatal(err)
		}
		p.write(fmt.Sprintf("cert%d", i), leaf.Cert)
		p.write(fmt.Sprintf("key%d", i), leaf.Key)
		p.doc.Pods = append(p.doc.Pods, bootstrap.Pod{Name: fmt.Sprint(i), Address: l.Addr().String(), FirstRank: p.doc.Ranks, Ranks: n})
		p.doc.Ranks += n
	}
	raw, err := json.Marshal(p.doc)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("bootstrap.json", raw)
}

func (p *pods) write(name string, raw []byte) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pods) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pods) socket(pod int) string { return p.path(fmt.Sprintf("s%d", pod)) }

// sidecar starts the sidecar of a pod. At the end of the test it must still run, and exit with 0.
func (p *pods) sidecar(pod int) {
	p.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), at(p.t, "outrigger-sidecar"), "--bootstrap", p.path("bootstrap.json"),
		"--pod", fmt.Sprint(pod), "--socket", p.socket(pod), "--metrics", "unix:"+p.path(fmt.Sprintf("m%d", pod)))
	log := p.path(fmt.Sprintf("log%d", pod))
	p.output(cmd, log)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.sidecars = append(p.sidecars, cmd)
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		err := cmd.Wait()
		text, _ := os.ReadFile(log)
		if err != nil || strings.Contains(string(text), "panic") || strings.Contains(string(text), "DATA RACE") {
			p.t.Errorf("sidecar %d: %v\n%s", pod, err, text)
		}
	})
}

// output sets the output of a process to a file: with a pipe, Wait would wait for children of the
// process that have inherited it.
func (p *pods) output(cmd *exec.Cmd, name string) {
	p.t.Helper()
	f, err := os.Create(name)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = f.Close() }) // the process has a descriptor of its own
	cmd.Stdout, cmd.Stderr = f, f
}

// rank is a process of the job.
type rank struct {
	p    *pods
	cmd  *exec.Cmd
	log  string
	exit chan error
}

// start starts a program as a rank of a pod.
func (p *pods) start(pod, number int, program ...string) *rank {
	p.t.Helper()
	r := &rank{p: p, log: p.path(fmt.Sprintf("rank%d", number)), exit: make(chan error, 1)}
	r.cmd = exec.CommandContext(p.t.Context(), program[0], program[1:]...)
	r.cmd.Env = append(os.Environ(), names.EnvSocket+"="+p.socket(pod), fmt.Sprintf("%s=%d", names.EnvRank, number))
	p.output(r.cmd, r.log)
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { r.exit <- r.cmd.Wait() }()
	return r
}

func (r *rank) says() string {
	r.p.t.Helper()
	raw, err := os.ReadFile(r.log)
	if err != nil {
		r.p.t.Fatal(err)
	}
	return string(raw)
}

// end waits until a rank's process has ended and returns its exit code, or 128 plus the signal.
func (r *rank) end() int {
	r.p.t.Helper()
	select {
	case err := <-r.exit:
		if state, ok := r.cmd.ProcessState.Sys().(interface{ Signaled() bool }); ok && state.Signaled() {
			return 128 + int(unix.SIGKILL)
		}
		var x *exec.ExitError
		if err != nil && !errors.As(err, &x) {
			r.p.t.Fatal(err)
		}
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(jobTime):
		r.p.t.Fatalf("%v has not ended within %v\n%s\n%s", r.cmd.Args, jobTime, r.says(), r.p.words())
	}
	return 0
}

// words returns the output of all processes.
func (p *pods) words() string {
	var all strings.Builder
	files, _ := filepath.Glob(p.path("*")) // the pattern is valid
	for _, f := range files {
		if name := filepath.Base(f); strings.HasPrefix(name, "log") || strings.HasPrefix(name, "rank") {
			raw, _ := os.ReadFile(f) // only for an error message
			fmt.Fprintf(&all, "-- %s\n%s", name, raw)
		}
	}
	return all.String()
}

func (p *pods) await(what string, there func() bool) {
	p.t.Helper()
	for end := time.Now().Add(jobTime); !there(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("no %s\n%s", what, p.words())
		}
	}
}

// get returns a sidecar's answer to an HTTP request, or "" if it does not answer.
func (p *pods) get(pod int, path string) string {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", p.path(fmt.Sprintf("m%d", pod)))
		},
	}}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://sidecar"+path, nil)
	if err != nil {
		return ""
	}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }() // the body was read completely
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return resp.Status + "\n" + string(raw)
}

// descriptors returns the targets of a sidecar's open descriptors.
func (p *pods) descriptors(pod int) []string {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.sidecars[pod].Process.Pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.words())
	}
	var open []string
	for _, e := range list {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // otherwise it was closed meanwhile
			open = append(open, to)
		}
	}
	return open
}

// held returns what a sidecar still has of ranks: mappings of their memory, and descriptors other
// than those of connections between sidecars.
func (p *pods) held(pod int) (held []string) {
	p.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.sidecars[pod].Process.Pid))
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.words())
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:outrigger-") {
			held = append(held, strings.TrimSpace(line))
		}
	}
	const peers = 3 // at most two sockets of a connection for frames, and one for agreement
	if open := p.descriptors(pod); len(open) > p.before[pod]+peers {
		held = append(held, open...)
	}
	return held
}

// clean waits until the sidecars have released everything of all ranks, and checks that they are
// healthy.
func (p *pods) clean() {
	p.t.Helper()
	for i := range p.sidecars {
		for end := time.Now().Add(jobTime); len(p.held(i)) > 0; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				p.t.Fatalf("sidecar %d had %d descriptors before, and has\n%s\n%s", i, p.before[i], strings.Join(p.held(i), "\n"), p.words())
			}
		}
		if answer := p.get(i, "/metrics"); !strings.HasPrefix(answer, "200") {
			p.t.Errorf("metrics of sidecar %d: %s", i, answer)
		}
	}
}
