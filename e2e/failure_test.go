package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func ring(args ...string) []string { return append([]string{filepath.Join(bin, "ring")}, args...) }

// TestRankKilled checks that the job ends and names the rank that was killed, and not a rank
// that failed because of that.
func TestRankKilled(t *testing.T) {
	j := start(t, 4, 2, ring("-rounds", "1000000", "-bytes", "4096")...)
	pid := number(t, j.waitFor(`rank 2 is process (\d+)`)[1])
	time.Sleep(200 * time.Millisecond) // into the exchange
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	code, out := j.wait()
	t.Logf("the job ended %v after the kill", time.Since(begin))
	if code != 128+9 || !strings.Contains(out, "rank 2 (pod 1) was killed by SIGKILL\n") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, pod := range []string{"pod0", "pod1"} {
		events, err := os.ReadFile(filepath.Join(j.dir, pod, "flight"))
		if err != nil || !strings.Contains(string(events), "failed") || !strings.Contains(string(events), "recv  ") {
			t.Errorf("the flight recorder of %s: %v\n%.1000s", pod, err, events)
		}
	}
}

func TestSidecarKilled(t *testing.T) {
	j := start(t, 4, 2, ring("-rounds", "1000000", "-bytes", "4096")...)
	j.waitFor(`rank 3 is process (\d+)`)
	raw, err := os.ReadFile(filepath.Join(j.dir, "pod1", "sidecar.pid"))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // into the exchange
	if err := unix.Kill(number(t, string(raw)), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	code, out := j.wait()
	t.Logf("the job ended %v after the kill", time.Since(begin))
	if code != 1 || !strings.Contains(out, "the sidecar of pod 1 (ranks 2-3) ended: killed by SIGKILL") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}

// TestSidecarStopped checks that a stopped sidecar is given up in bounded time, named, and
// killed with the job.
func TestSidecarStopped(t *testing.T) {
	j := start(t, 4, 2, ring("-rounds", "1000000", "-bytes", "4096")...)
	j.waitFor(`rank 3 is process (\d+)`)
	j.waitTotals("traffic between the pods", func(c totals) bool { return c.BytesIn > 0 })
	raw, err := os.ReadFile(filepath.Join(j.dir, "pod1", "sidecar.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(number(t, string(raw)), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	code, out := j.wait()
	if code != 1 || !strings.Contains(out, "sidecar of pod 1 (ranks 2-3) is lost") || !strings.Contains(out, "job failed: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	j.left()
}

// sidecar makes a request at the metrics socket of a pod's sidecar.
func (j *job) sidecar(method, path string, pod string) (*http.Response, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(j.dir, pod, "metrics.sock"))
		},
	}}
	req, err := http.NewRequestWithContext(j.t.Context(), method, "http://sidecar"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// totals are the counters of pod 0's sidecar that tests check.
type totals struct{ Reconnects, BytesIn int }

// waitTotals waits until the counters of pod 0 are as wanted.
func (j *job) waitTotals(what string, enough func(totals) bool) {
	j.t.Helper()
	for end := time.Now().Add(jobTime); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var report struct{ Totals totals }
		resp, err := j.sidecar(http.MethodGet, "/report", "pod0")
		if errors.Is(err, fs.ErrNotExist) { // a rank of the other pod may print before this sidecar listens
			continue
		}
		if err != nil {
			j.t.Fatalf("waiting for %s: %v\n%s", what, err, j.out)
		}
		err = json.NewDecoder(resp.Body).Decode(&report)
		_ = resp.Body.Close() // read to its end
		if err != nil {
			j.t.Fatal(err)
		}
		if enough(report.Totals) {
			return
		}
	}
	j.t.Fatalf("no %s\n%s", what, j.out)
}

// TestConnectionBroken breaks the connection between two sidecars twenty times
// under eager and rendezvous traffic: the job goes on with right results.
func TestConnectionBroken(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"8", "4096", "60000", "300000"} {
		for _, memory := range []string{"-private=false", "-private=true"} {
			t.Run(size+memory, func(t *testing.T) {
				t.Parallel() // most of it is waiting
				breakOften(t, nil, size, memory)
			})
		}
	}
}

// TestEncryptedConnectionBroken: the same with data inside TLS.
func TestEncryptedConnectionBroken(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"8", "60000", "300000"} {
		t.Run(size, func(t *testing.T) {
			t.Parallel()
			breakOften(t, []string{"--encrypt"}, size, "-private=false")
		})
	}
}

func breakOften(t *testing.T, flags []string, size, memory string) {
	t.Helper()
	j := startWith(t, flags, 4, 2, ring("-rounds", "3000", "-bytes", size, "-pause", "1ms", memory)...)
	j.waitFor(`rank 3 is process (\d+)`)
	j.waitTotals("traffic between the pods", func(c totals) bool { return c.BytesIn > 0 })
	for n := 1; n <= 20; n++ {
		resp, err := j.sidecar(http.MethodPost, "/debug/break/1", "pod0")
		if err != nil {
			t.Fatalf("%v\n%s", err, j.out)
		}
		_ = resp.Body.Close() // empty
		j.waitTotals(fmt.Sprint(n, " reconnects"), func(c totals) bool { return c.Reconnects >= n })
	}
	code, out := j.wait()
	if code != 0 || !strings.Contains(out, "every byte right") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}

func TestExitCode(t *testing.T) {
	j := start(t, 4, 2, "/bin/sh", "-c", "test $OUTRIGGER_RANK = 1 && exit 3; sleep 60")
	if code, out := j.wait(); code != 3 || !strings.Contains(out, "rank 1 (pod 0) exited with code 3") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}

func TestMissingProgram(t *testing.T) {
	j := start(t, 2, 1, "/no/such/program")
	if code, out := j.wait(); code != 127 || !strings.Contains(out, "/no/such/program") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}

func TestArenaTooLarge(t *testing.T) {
	t.Setenv("OUTRIGGER_ARENA", "900000GiB")
	j := start(t, 2, 1, filepath.Join(bin, "hello"))
	if code, out := j.wait(); code == 0 || !strings.Contains(out, "arena") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	t.Setenv("OUTRIGGER_ARENA", "900GiB")
	j = start(t, 2, 1, filepath.Join(bin, "hello"))
	if code, out := j.wait(); code == 0 || !strings.Contains(out, "not enough memory") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}
