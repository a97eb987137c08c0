package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

var bin string // directory of the programs

func TestMain(m *testing.M) { os.Exit(build(m)) }

// build builds the programs once for all tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outrigger-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/", ".", "../outrigger-sidecar", "../outrigger-launch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in make build, so that the build cache has the packages
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the programs:", err)
		return 1
	}
	bin = dir
	return m.Run()
}

// hung is the time after which a program is interrupted.
const hung = 90 * time.Second

// program returns the command that runs outrigger with args.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "outrigger"), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // outrigger ends its job
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	cmd := program(t, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("outrigger %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut.String())
	}
	return string(out)
}

func TestBenchMeasuresEverything(t *testing.T) {
	plots := t.TempDir()
	out := output(t, "bench", "--quick", "--json", "--tests", strings.Join(bench.Tests, ","), "--plots", plots)
	count := map[string]int{}
	all, err := bench.Read(strings.NewReader(out), func(f bench.Figure) error {
		count[f.Test]++
		positive := f.US > 0 || f.MBs > 0 || f.MsgS > 0 || f.P50 > 0 || f.Overlap != nil
		peer := "outrigger-node"
		if f.Test == bench.Self {
			peer = "outrigger-local" // one rank, one pod
		}
		if f.Peer != peer || !positive {
			return fmt.Errorf("figure %+v", f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	quick := bench.Method{Quick: true}
	for test, want := range map[string]int{
		bench.Self: 1, bench.Latency: 20, bench.Bandwidth: 7, bench.Rate: 1, bench.Overlap: 8, bench.Collectives: len(quick.Calls(bench.Operations, 4)),
		bench.Reuse: 2 * (2*len(bench.ReuseSizes) + 4), bench.OneSided: 2 * 2 * len(bench.ReuseSizes),
		bench.Bowtie: 5 * 2 * len(bench.BowtieSizes), bench.Channels: 4 * (len(bench.ChannelSmall) + len(bench.ChannelLarge)),
	} {
		if count[test] != want {
			t.Errorf("%d figures of %s, want %d", count[test], test, want)
		}
	}
	for _, f := range all {
		if f.Test == bench.Collectives && f.Ranks != 4 {
			t.Errorf("a collective of %d ranks, want 4", f.Ranks)
		}
	}
	for _, name := range []string{"latency.png", "bandwidth.png", "collectives.png", "reuse.png", "onesided.png", "bowtie.png", "channels.png"} {
		if _, err := os.Stat(filepath.Join(plots, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestBenchInOnePodWithOrdinaryMemory(t *testing.T) {
	out := output(t, "bench", "--quick", "--pods", "1", "--private", "--tests", "latency,rate,collectives", "-n", "3")
	for _, want := range []string{"Latency", "4 MiB", "Message rate", "Collectives of 3 ranks", "alltoall"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "Overlap") {
		t.Errorf("a test that was not chosen:\n%s", out)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for arg, want := range map[string]string{
		"--tests=altitude": `"altitude"`, "--pods=3": "--pods 3", "--ranks=1": "--ranks 1",
	} {
		out, err := program(t, "bench", "--quick", arg).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", arg, err, out)
		}
	}
}

func TestRunRefusesNegativeTimes(t *testing.T) {
	for _, flag := range []string{"--timeout", "--deadlock-after"} {
		out, err := program(t, "run", flag, "-1s", "--", "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), flag+" -1s: want a time") {
			t.Errorf("%s: %v, %s", flag, err, out)
		}
	}
}

// TestHangsAreReported: by default after 10 s on a terminal and after 300 s on a cluster.
func TestHangsAreReported(t *testing.T) {
	out, err := program(t, "run", "--help").CombinedOutput()
	if err != nil || !regexp.MustCompile(`--deadlock-after duration .*\(default 10s\)`).Match(out) {
		t.Errorf("%v, %s", err, out)
	}
	if deadlockAfter != 10*time.Second || v1alpha1.DeadlockAfterDefault != 300 {
		t.Errorf("after %v, and %d s on a cluster", deadlockAfter, v1alpha1.DeadlockAfterDefault)
	}
}

func TestRunRefusesWhatContradictsItself(t *testing.T) {
	for want, args := range map[string][]string{
		"--deadlock-fails with --deadlock-after 0: deadlocks are not searched for": {"run", "--deadlock-fails", "--deadlock-after", "0", "--", "true"},
		"--deadlock-after 1ns: want 100ms at least":                                {"run", "--deadlock-after", "1ns", "--", "true"},
		`--mpi "mpi": want auto, mpich`:                                            {"run", "--mpi", "mpi", "--", "true"},
		"--status: open /nowhere/s: no such file":                                  {"run", "-f", "../../../docs/examples/cg.yaml", "--status", "/nowhere/s"},
		`"--deadlock-fails" flag: want true or false`:                              {"run", "--deadlock-fails=maybe", "--", "true"},
	} {
		out, err := program(t, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

// TestTopShowsAJobFromStartToEnd watches a job that does nothing.
func TestTopShowsAJobFromStartToEnd(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", privateDir(t))
	if out := output(t, "top", "--once"); !strings.Contains(out, "No job of yours") {
		t.Errorf("before the job:\n%s", out)
	}
	job := program(t, "run", "-n", "2", "--pods", "2", "--", "/bin/sleep", "1000")
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	shown := ""
	for end := time.Now().Add(hung); ; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the job does not appear; last picture:\n%s", shown)
		}
		shown = output(t, "top", "--once", "--interval", "50ms")
		if strings.Contains(shown, "2 ranks in 2 pods") && !strings.ContainsAny(shown, "?-") {
			break // both sidecars answered twice
		}
	}
	watch := program(t, "top", "sleep", "--interval", "50ms")
	var pictures bytes.Buffer
	watch.Stdout = &pictures
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	if err := job.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(); err == nil {
		t.Error("an interrupted job ended with 0")
	}
	_ = watch.Wait() // it ends with the job, or fails because the job has ended
	if out, err := program(t, "top", "sleep").CombinedOutput(); err == nil || !strings.Contains(string(out), `no job of yours is "sleep"`) {
		t.Errorf("after the job: %v, %s", err, out)
	}
}

// privateDir returns a directory that only this user may access.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	return dir
}

func TestBlockFitsTheTerminal(t *testing.T) {
	got := string(fit([]byte("abcdef\nxyz\nlast\n"), 4, 3))
	if want := "\033[Habcd\033[K\r\nxyz\033[K\r\n\033[J"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
