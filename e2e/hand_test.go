package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// hand is a job whose sidecars the test starts, as a cluster would.
type hand struct {
	t        *testing.T
	dir      string
	doc      *bootstrap.Document
	listen   []string // where the sidecars listen; the document may say otherwise
	odd      string   // transport of the last pod, by a document of its own; empty: that of the job
	sidecars []*exec.Cmd
	out      *output
}

// prepareHand prepares a job with one pod for each number of ranks.
func prepareHand(t *testing.T, ranks ...int) *hand {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // socket paths are short; t.TempDir's need not be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	h := &hand{t: t, dir: dir, out: new(output), doc: &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: "by hand", ID: "0123456789abcdef"},
		TLS:    bootstrap.TLS{CAFile: dir + "/ca", CertFile: dir + "/cert%d", KeyFile: dir + "/key%d"},
		Memory: bootstrap.Memory{ArenaBytes: 16 << 20}, Tuning: bootstrap.Tuning{Transport: *transport},
	}}
	a, err := pki.New(h.doc.Job.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h.write("ca", a.CA())
	var held []net.Listener
	for i, n := range ranks {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		address := l.Addr().String()
		h.listen = append(h.listen, address)
		h.doc.Pods = append(h.doc.Pods, bootstrap.Pod{Name: fmt.Sprint(i), Address: address, FirstRank: h.doc.Ranks, Ranks: n})
		h.doc.Ranks += n
		leaf, err := a.Leaf(i)
		if err != nil {
			t.Fatal(err)
		}
		h.write(fmt.Sprintf("cert%d", i), leaf.Cert)
		h.write(fmt.Sprintf("key%d", i), leaf.Key)
	}
	for _, l := range held {
		_ = l.Close() // no client has connected
	}
	return h
}

func (h *hand) write(name string, raw []byte) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), raw, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hand) writeDocument() {
	h.t.Helper()
	raw, err := json.Marshal(h.doc)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("bootstrap.json", raw)
}

// oddDocument writes the job document of a pod with another transport.
func (h *hand) oddDocument() string {
	h.t.Helper()
	own := *h.doc
	own.Tuning.Transport = h.odd
	raw, err := json.Marshal(&own)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("odd.json", raw)
	return h.dir + "/odd.json"
}

func (h *hand) socket(pod int) string { return fmt.Sprintf("%s/s%d", h.dir, pod) }

// start starts the sidecars, which end with the test.
func (h *hand) start(flags ...string) {
	h.t.Helper()
	h.writeDocument()
	for i := range h.doc.Pods {
		document := h.dir + "/bootstrap.json"
		if h.odd != "" && i == len(h.doc.Pods)-1 {
			document = h.oddDocument()
		}
		args := append([]string{"--bootstrap", document, "--pod", fmt.Sprint(i), "--socket", h.socket(i), "--listen", h.listen[i]}, flags...)
		cmd := h.command(context.WithoutCancel(h.t.Context()), "outrigger-sidecar", args...)
		if err := cmd.Start(); err != nil {
			h.t.Fatal(err)
		}
		h.sidecars = append(h.sidecars, cmd)
		h.t.Cleanup(func() {
			_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
			if err := cmd.Wait(); err != nil {
				h.t.Errorf("sidecar %d: %v\n%s", i, err, h.out)
			}
		})
	}
}

func (h *hand) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	cmd.Stdout, cmd.Stderr = h.out, h.out
	return cmd
}

// launch runs a program as the ranks of all pods to its end.
func (h *hand) launch(program ...string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), jobTime)
	defer cancel()
	var all []*exec.Cmd
	for i, p := range h.doc.Pods {
		args := []string{"--socket", h.socket(i), "--ranks", fmt.Sprintf("%d-%d", p.FirstRank, p.FirstRank+p.Ranks-1), "--"}
		cmd := h.command(ctx, "outrigger-launch", append(args, program...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		if err := cmd.Start(); err != nil {
			h.t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for i, cmd := range all {
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("ranks of pod %d: %v\n%s", i, err, h.out)
		}
	}
}

// TestTransportsMeet checks that all data uses TCP if only one of two pods would share memory.
func TestTransportsMeet(t *testing.T) {
	for _, last := range []string{bootstrap.TransportTCP, bootstrap.TransportNode} {
		t.Run(last, func(t *testing.T) {
			h := prepareHand(t, 1, 1, 2)
			h.odd = last
			h.doc.Tuning.Transport = bootstrap.TransportNode
			if last == bootstrap.TransportNode {
				h.doc.Tuning.Transport = bootstrap.TransportTCP
			}
			h.start("--log-level", "debug")
			h.launch(ring("-rounds", "30", "-bytes", "300000")...)
			if !strings.Contains(h.out.String(), "every byte right") {
				t.Errorf("no right result\n%s", h.out)
			}
			met := strings.Count(h.out.String(), "connected by shared memory")
			if want := map[string]int{bootstrap.TransportTCP: 2}[last]; met != want { // of the first two with each other
				t.Errorf("%d ends of connections by shared memory, want %d\n%s", met, want, h.out)
			}
		})
	}
}
