package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// checkpointCommand makes the test binary a program that agrees by messages to write a
// checkpoint when it is told to end, and ends then with a code of its own.
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

// saving goes on until a rank is told to end. Then it writes for some time, and all ranks
// meet.
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

// TestCheckpoint: ranks of a job that is interrupted exchange messages until they have
// written what they need to go on later.
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
