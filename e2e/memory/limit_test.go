//go:build cluster

package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/memory"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// group makes a control group with a memory limit, in the hierarchy that has
// the memory controller, and returns its directory.
func group(t *testing.T, limit int64) string {
	t.Helper()
	root, file := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(filepath.Join(root, "memory", "memory.limit_in_bytes")); err == nil {
		root, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
	}
	dir := filepath.Join(root, fmt.Sprintf("outrigger-memory-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatalf("%v: this test needs root", err)
	}
	t.Cleanup(func() {
		for range 100 { // until the last process is gone
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%s is still there", dir)
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// document writes the job document of one pod, with its certificate.
func document(t *testing.T, dir string, s memory.Sizes, ranks int) string {
	t.Helper()
	return documents(t, dir, s, ranks, "127.0.0.1:1")[0]
}

// documents writes the job documents of pods of so many ranks each, whose sidecars listen on
// addresses, with their certificates.
func documents(t *testing.T, dir string, s memory.Sizes, ranks int, addresses ...string) (paths []string) {
	t.Helper()
	a, err := pki.New("memory", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var pods []bootstrap.Pod
	for i, address := range addresses {
		pods = append(pods, bootstrap.Pod{Name: fmt.Sprint("memory-", i), Address: address, FirstRank: i * ranks, Ranks: ranks})
	}
	for i := range addresses {
		leaf, err := a.Leaf(i)
		if err != nil {
			t.Fatal(err)
		}
		file := func(name string) string { return filepath.Join(dir, fmt.Sprint(name, i)) }
		text, err := json.Marshal(&bootstrap.Document{
			Version: bootstrap.Version, Job: bootstrap.Job{Name: "memory", ID: "memory"}, Ranks: ranks * len(pods), Pods: pods,
			TLS:    bootstrap.TLS{CAFile: file("ca"), CertFile: file("cert"), KeyFile: file("key")},
			Memory: bootstrap.Memory{ArenaBytes: s.Arena, SlabBytes: s.Slab},
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, raw := range map[string][]byte{"ca": a.CA(), "cert": leaf.Cert, "key": leaf.Key, "job": text} {
			if err := os.WriteFile(file(name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, file("job"))
	}
	return paths
}

// sidecar starts the sidecar of the first pod in a control group; its last words go to a file.
func sidecar(t *testing.T, program, dir, group, document string, more ...string) (socket, words string) {
	t.Helper()
	return sidecarOf(t, 0, program, dir, group, document, append([]string{"--listen=127.0.0.1:0"}, more...)...)
}

// sidecarOf starts the sidecar of a pod.
func sidecarOf(t *testing.T, pod int, program, dir, group, document string, more ...string) (socket, words string) {
	t.Helper()
	socket, words = filepath.Join(dir, fmt.Sprint("s", pod)), filepath.Join(dir, fmt.Sprint("words", pod))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group,
		program, "--bootstrap", document, fmt.Sprint("--pod=", pod), "--socket", socket, "--termination-log", words)
	cmd.Args = append(cmd.Args, more...)
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was told to end
		if t.Failed() {
			t.Log(out)
		}
	})
	return socket, words
}

// TestEveryRankAtTheLimit checks that the operator's limit suffices for all ranks of a pod to
// attach and use all of their arenas, small and large ones, as the kernel counts memory.
func TestEveryRankAtTheLimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		arena int64
		ranks int
	}{{64 << 20, 1}, {64 << 20, 32}, {512 << 20, 8}, {1 << 30, 1}, {1 << 30, 6}, {8 << 30, 1}} {
		t.Run(fmt.Sprintf("%d ranks of %d MiB", c.ranks, c.arena>>20), func(t *testing.T) {
			s := memory.Sizes{Arena: c.arena, Slab: memory.SlabDefault, Credit: memory.CreditDefault, MPI: true}
			dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
			in := group(t, s.Need(c.ranks, c.ranks, 1))
			socket, words := sidecar(t, program, dir, in, document(t, dir, s, c.ranks))
			for rank := range c.ranks {
				session, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: rank})
				if err != nil {
					raw, _ := os.ReadFile(words) // empty if the sidecar wrote none
					t.Fatalf("rank %d of %d: %v; %s", rank, c.ranks, err, raw)
				}
				t.Cleanup(func() { _ = session.Close() }) // the sidecar ends anyway
				if _, err := outrigger.Alloc[byte](session, int(c.arena)); err != nil {
					t.Fatalf("rank %d of %d: %v", rank, c.ranks, err)
				}
			}
			t.Logf("at most %d of %d bytes were used", peak(t, in), s.Need(c.ranks, c.ranks, 1))
		})
	}
}

// TestRegistrationsAtTheLimit checks that the memory of a sidecar's registration caches, at
// their bounds, is within the part of the limit for it. No card is needed: the caches are the
// real ones, and the kernel counts their memory.
func TestRegistrationsAtTheLimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gather.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, "../../sidecar/internal/gather").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		arena int64
		ranks int
	}{{64 << 20, 1}, {64 << 20, 32}, {512 << 20, 8}, {1 << 30, 1}, {1 << 30, 16}, {8 << 30, 1}, {8 << 30, 16}} {
		t.Run(fmt.Sprintf("%d ranks of %d MiB", c.ranks, c.arena>>20), func(t *testing.T) {
			with, without := memory.Sizes{Arena: c.arena, Registers: true}, memory.Sizes{}
			// What is not here: the ranks' pages and what the kernel keeps for each, 18
			// bytes as api/memory has it, and the sidecar but for a program's start.
			const started = 16 << 20
			absent := int64(c.ranks)*(c.arena+c.arena/4096*18) + without.Need(c.ranks, c.ranks, 1) - started
			limit := with.Need(c.ranks, c.ranks, 1) - absent
			in := group(t, limit)
			cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, in, program,
				"-test.v", "-test.run=^TestMemoryAtTheBound$", fmt.Sprint("-memory.ranks=", c.ranks), fmt.Sprint("-memory.arena=", c.arena>>20))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("at most %d of %d bytes were used", peak(t, in), limit)
		})
	}
}

// peak returns the most that a control group has used.
func peak(t *testing.T, dir string) int64 {
	t.Helper()
	for _, file := range []string{"memory.peak", "memory.max_usage_in_bytes"} {
		if raw, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Logf("the kernel does not say how much %s has used", dir)
	return 0
}

// TestTooLowALimit checks that, if an administrator has lowered the limit, the sidecar's
// termination message names the rank without memory, and the remedy.
func TestTooLowALimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := memory.Sizes{Arena: 64 << 20, Slab: memory.SlabDefault, Credit: memory.CreditDefault, MPI: true}
	dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	// The kernel counts whole pages; a rank's own share is far more.
	socket, words := sidecar(t, program, dir, group(t, (s.Own(2, 2, 1)+s.Attached()+2<<20)&^4095), document(t, dir, s, 2))
	first, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() }) // the sidecar ends anyway
	if _, err := outrigger.Alloc[byte](first, 16<<20); !errors.Is(err, outrigger.ErrNoMemory) || !strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("rank 0 uses more than there is: %v", err)
	}
	if _, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: 1}); err == nil || !strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("rank 1: %v", err)
	}
	raw, err := os.ReadFile(words)
	if err != nil || !strings.Contains(string(raw), `"rank":1`) || !strings.Contains(string(raw), "MemoryShort") || !strings.Contains(string(raw), "lower the arena") {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestIdleConnectionsAtTheLimit checks that a sidecar with the operator's limit, and all of
// its ranks attached, survives thousands of connections at both of its ports that send
// requests and read nothing, and still answers a probe.
func TestIdleConnectionsAtTheLimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const ranks = 4
	s := memory.Sizes{Arena: 64 << 20, Slab: memory.SlabDefault, Credit: memory.CreditDefault, MPI: true}
	dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	ports := make([]string, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	in := group(t, s.Need(ranks, ranks, 1))
	socket, _ := sidecar(t, program, dir, in, document(t, dir, s, ranks), "--health="+ports[0], "--metrics="+ports[1])
	for rank := range ranks {
		session, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() }) // the sidecar ends anyway
	}
	probe := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 3000 {
		at := ports[i%2]
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // it may be over
		ask := []string{"GET /metrics", "GET /report", "GET /healthz", "GET /why"}[i/2%4] + " HTTP/1.1\r\nHost: x\r\n"
		if i%3 > 0 {
			ask += "X: " + strings.Repeat("x", 6000) + "\r\n"
		}
		if i%5 > 0 {
			ask += "\r\n" + strings.Repeat("x", 64<<10) // it reads no answer, and sends on
		}
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(ask)) // it may be over already
		if i%500 < 498 {
			continue
		}
		r, err := probe.Get("http://" + at + "/healthz")
		if err != nil {
			t.Fatalf("a probe after %d connections: %v", i+1, err)
		}
		_ = r.Body.Close() // short
		if r.StatusCode != http.StatusOK {
			t.Errorf("a probe: %s", r.Status)
		}
	}
	t.Logf("at most %d of %d bytes were used", peak(t, in), s.Need(ranks, ranks, 1))
}

// TestIdleRanks checks that attached ranks that use nothing need little memory, whatever the
// size of their arenas.
func TestIdleRanks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outrigger-sidecar")
	if out, err := exec.Command("go", "build", "-o", program, "../../sidecar/cmd/outrigger-sidecar").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const ranks = 64
	s := memory.Sizes{Arena: memory.ArenaDefault, Slab: memory.SlabDefault, Credit: memory.CreditDefault, First: true, MPI: true}
	dir, err := os.MkdirTemp("", "memory-") //nolint:usetesting // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	in := group(t, s.Need(ranks, ranks, 1))
	socket, _ := sidecar(t, program, dir, in, document(t, dir, s, ranks))
	for rank := range ranks {
		session, err := outrigger.Open(t.Context(), outrigger.Config{Socket: socket, Rank: rank})
		if err != nil {
			t.Fatalf("rank %d of %d: %v", rank, ranks, err)
		}
		t.Cleanup(func() { _ = session.Close() }) // the sidecar ends anyway
	}
	if used, most := peak(t, in), ranks*s.Attached()+s.Own(ranks, ranks, 1); used > most {
		t.Errorf("%d idle ranks: %d bytes are used, want at most %d", ranks, used, most)
	} else {
		t.Logf("%d idle ranks: at most %d bytes were used", ranks, used)
	}
}
