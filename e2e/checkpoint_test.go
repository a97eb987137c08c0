package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// checkpointCommand runs the test binary as a program whose ranks agree by messages to write a
// checkpoint when they get SIGTERM, and then exit with a code of their own.
const (
	checkpointCommand = "checkpoint"
	checkpointCode    = 85
	checkpointTime    = 3 * time.Second // longer than ranks of a failed job have
)

func checkpoint() int {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	if err := saving(context.Background(), told); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return checkpointCode
}

// saving computes until a rank gets SIGTERM. Then each rank writes for some time, and all
// ranks meet in a barrier.
func saving(ctx context.Context, told <-chan os.Signal) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	w := s.World()
	_, _ = fmt.Fprintln(os.Stdout, "runs")
	for mine, all := []int64{0}, []int64{0}; all[0] == 0; time.Sleep(5 * time.Millisecond) {
		select {
		case <-told:
			mine[0] = 1
		default:
		}
		if err := outrigger.Allreduce(ctx, w, mine, all, outrigger.Max); err != nil {
			return err
		}
	}
	time.Sleep(checkpointTime)
	if err := w.Barrier(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, "checkpoint written")
	return s.Close()
}

// TestCheckpoint checks that the ranks of an interrupted job can exchange messages until they
// have written a checkpoint.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	j := start(t, 4, 2, os.Args[0], checkpointCommand)
	j.waitFor(`(?s)(runs.*){4}`)
	if err := j.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	code, out := j.wait()
	if code != 130 || strings.Count(out, "checkpoint written") != 4 || strings.Contains(out, "Failed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestGoesOnFromACheckpoint checks that the example that writes checkpoints begins with the
// round of the checkpoint.
func TestGoesOnFromACheckpoint(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "round")
	program := ring("-rounds", "300", "-pause", "10ms", "-checkpoint", file)
	j := start(t, 4, 2, program...)
	j.waitFor(`(?s)(rank \d is process.*){4}`)
	if err := j.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, out := j.wait(); code != 130 || !strings.Contains(out, "checkpoint written before round ") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	round, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code, out := start(t, 4, 2, program...).wait()
	if code != 0 || !strings.Contains(out, "goes on with round "+string(round)+"\n") || !strings.Contains(out, "300 rounds of ") {
		t.Errorf("exit code %d, want it to go on with round %s\n%s", code, round, out)
	}
	if err := os.WriteFile(file, []byte("no number"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := start(t, 4, 2, program...).wait(); code == 0 || !strings.Contains(out, "no number") {
		t.Errorf("with a checkpoint that is none: exit code %d\n%s", code, out)
	}
}
