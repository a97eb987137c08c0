package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Mistakes that hang every MPI: this test binary, as the ranks of a job, makes
// them, and the job's time runs out. What the person reads then names the cause.
const hangingCommand = "hanging"

type hang struct {
	play  func(context.Context, *outrigger.Comm) error
	ranks int
	want  []string // all of them are said
}

var hangs = map[string]hang{
	"wrong tag": {wrongTag, 2, []string{"rank 1 waits", "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)"}},
	"wrong source": {wrongSource, 3, []string{
		"rank 2 waits", "recv from 1 tag 5; unexpected here: from 0 tag 5, 8 B (a wrong source?)",
	}},
	"head to head": {headToHead, 2, []string{"ranks 0 and 1 wait for each other", "send to 1 tag 3, 8 MiB, no receive", "send to 0 tag 3, 8 MiB, no receive"}},
	"ring":         {ringOfReceives, 3, []string{"ranks 0 to 2 wait for each other in a ring"}},
	"two roots":    {twoRoots, 2, []string{"ranks disagree about a collective: rank 0 is in gather of root 0, rank 1 is in gather of root 1"}},
	"long wait":    {longWait, 3, []string{"ranks 0 to 2 wait for no message: the program computes"}},
	"missing rank": {missingRank, 3, []string{"barrier in round", "rank 2 waits for no message: the program computes"}},
}

func hanging(name string) int {
	play := hangs[name].play
	if d := disagreements[name]; d.play != nil {
		play = d.play
	}
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err == nil {
		err = play(ctx, s.World())
	}
	fmt.Fprintln(os.Stderr, "the program went on:", err)
	return 1
}

func TestWhy(t *testing.T) {
	t.Parallel()
	for name, h := range hangs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--timeout", "8s"}, h.ranks, 2, os.Args[0], hangingCommand, name).wait()
			if code != 124 {
				t.Errorf("exit code %d, want 124", code)
			}
			for _, want := range h.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// Ranks that call different collectives are told so at once. The last rank of three
// is the one that differs, and whoever notices it first speaks.
var disagreements = map[string]struct {
	play func(context.Context, *outrigger.Comm) error
	want []string // one of them is said
}{
	"other collective": {otherCollective, []string{": barrier here, allgather there", ": allgather here, barrier there"}},
	"other root":       {otherRoot, []string{" on bcast: root 0, there 1", " on bcast: root 1, there 0"}},
	"other size":       {otherSize, []string{" on allreduce: size, type or op"}},
	"other operation":  {otherOperation, []string{" on allreduce: size, type or op"}},
}

func TestRanksDisagree(t *testing.T) {
	t.Parallel()
	for name, d := range disagreements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--timeout", "30s"}, 3, 2, os.Args[0], hangingCommand, name).wait()
			said := slices.ContainsFunc(d.want, func(w string) bool { return strings.Contains(out, w) })
			if code != 1 || !said || !strings.Contains(out, "disagrees with rank") {
				t.Errorf("exit code %d, and none of %q is said\n%s", code, d.want, out)
			}
		})
	}
}

func otherCollective(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		return outrigger.Allgather(ctx, w, make([]int64, 8), make([]int64, 24))
	}
	return w.Barrier(ctx)
}

// twoRoots: each waits for the other, and nobody sends anything that could disagree.
func twoRoots(ctx context.Context, w *outrigger.Comm) error {
	return outrigger.Gather(ctx, w, make([]int64, 1), make([]int64, 2), w.Rank())
}

func otherRoot(ctx context.Context, w *outrigger.Comm) error {
	if err := outrigger.Bcast(ctx, w, make([]int64, 8), w.Rank()/2); err != nil {
		return err
	}
	return w.Barrier(ctx) // a root has sent, and would leave
}

func otherSize(ctx context.Context, w *outrigger.Comm) error {
	n := 8 + w.Rank()/2
	return outrigger.Allreduce(ctx, w, make([]int64, n), make([]int64, n), outrigger.Sum)
}

func otherOperation(ctx context.Context, w *outrigger.Comm) error {
	op := outrigger.Sum
	if w.Rank() == 2 {
		op = outrigger.Max
	}
	return outrigger.Allreduce(ctx, w, make([]int64, 8), make([]int64, 8), op)
}

func wrongTag(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 0 {
		if err := outrigger.Send(ctx, w, make([]float64, 100), 1, 7); err != nil {
			return err
		}
		return w.Barrier(ctx)
	}
	_, err := outrigger.Recv(ctx, w, make([]float64, 100), 0, 8)
	return err
}

func wrongSource(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 0 {
		if err := outrigger.Send(ctx, w, []int64{1}, 2, 5); err != nil {
			return err
		}
	}
	if w.Rank() == 2 {
		_, err := outrigger.Recv(ctx, w, make([]int64, 1), 1, 5)
		return err
	}
	return w.Barrier(ctx)
}

// headToHead: both send before they receive, more than is sent eagerly.
func headToHead(ctx context.Context, w *outrigger.Comm) error {
	buf := make([]float64, 1<<20)
	if err := outrigger.Send(ctx, w, buf, 1-w.Rank(), 3); err != nil {
		return err
	}
	_, err := outrigger.Recv(ctx, w, buf, 1-w.Rank(), 3)
	return err
}

func ringOfReceives(ctx context.Context, w *outrigger.Comm) error {
	left, right := (w.Rank()+w.Size()-1)%w.Size(), (w.Rank()+1)%w.Size()
	if _, err := outrigger.Recv(ctx, w, make([]int64, 1), left, 1); err != nil {
		return err
	}
	return outrigger.Send(ctx, w, []int64{1}, right, 1)
}

func missingRank(ctx context.Context, w *outrigger.Comm) error {
	if w.Rank() == 2 {
		select {} // it computes
	}
	return w.Barrier(ctx)
}
