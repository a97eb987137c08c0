// Package e2e runs real jobs with the real programs on this machine.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

var bin string // where the programs are

// transport is the transport of most jobs between their pods. With TCP, each pod is as on a
// machine of its own.
var transport = flag.String("transport", bootstrap.TransportNode, "what carries data between the pods of most jobs: node or tcp")

// programs are the programs that this test binary can be as the ranks of a job.
var programs = map[string]func(args []string) int{
	hostileCommand:     hostile,
	farewellCommand:    func(args []string) int { return farewell(args[0]) },
	rightCommand:       func(args []string) int { return right(args[0]) },
	hangingCommand:     func(args []string) int { return hanging(args[0]) },
	mindsCommand:       func(args []string) int { return minding(args[0]) },
	leavingCommand:     func(args []string) int { return leaving(args[0]) },
	againCommand:       func(args []string) int { return again(args[0]) },
	endCommand:         func(args []string) int { return end(args[0]) },
	collectivesCommand: collectives,
	mistakeCommand:     func(args []string) int { return mistake(args[0]) },
	checkpointCommand:  func([]string) int { return checkpoint() },
	isendsCommand:      func([]string) int { return isends() },
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		os.Exit(programs[os.Args[1]](os.Args[2:]))
	}
	os.Exit(build(m))
}

// build makes the programs once for all tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outrigger-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "../sidecar/cmd/...", "../clientlib/examples/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, whose compiled packages these are
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the programs:", err)
		return 1
	}
	bin = dir
	return m.Run()
}

// job is a running `outrigger run`.
type job struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *output
	dir  string
	done chan error
}

// output collects what a job prints and lets tests wait for a line.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// jobTime is the time after which a job counts as hanging.
const jobTime = 90 * time.Second

func start(t *testing.T, ranks, pods int, program ...string) *job {
	t.Helper()
	return startWith(t, nil, ranks, pods, program...)
}

// startWith starts a job with more flags for `outrigger run`.
func startWith(t *testing.T, flags []string, ranks, pods int, program ...string) *job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), jobTime)
	t.Cleanup(cancel)
	// Socket paths are short; t.TempDir's need not be.
	dir, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a temporary directory
	args := []string{"run", "-n", strconv.Itoa(ranks), "--pods", strconv.Itoa(pods), "--dir", dir, "--arena", "64", "--report", "--transport", *transport}
	args = append(append(args, flags...), "--")
	j := &job{t: t, out: new(output), dir: dir, done: make(chan error, 1)}
	j.cmd = exec.CommandContext(ctx, filepath.Join(bin, "outrigger"), append(args, program...)...)
	j.cmd.Stdout, j.cmd.Stderr = j.out, j.out
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(os.Interrupt) }
	j.cmd.WaitDelay = 10 * time.Second
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.done <- j.cmd.Wait() }()
	return j
}

// wait returns the exit code and the output.
func (j *job) wait() (int, string) {
	j.t.Helper()
	err := <-j.done
	var x *exec.ExitError
	switch {
	case err == nil:
		return 0, j.out.String()
	case errors.As(err, &x):
		return x.ExitCode(), j.out.String()
	}
	j.t.Fatalf("%v\n%s", err, j.out)
	return 0, ""
}

// waitFor waits until the output has a match and returns its groups.
func (j *job) waitFor(pattern string) []string {
	j.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(jobTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if m := re.FindStringSubmatch(j.out.String()); m != nil {
			return m
		}
	}
	j.t.Fatalf("no %q in\n%s", pattern, j.out)
	return nil
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
