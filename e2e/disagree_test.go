package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// The test binary, as the ranks of a job, calls collectives with two roots: rank 1 names
// itself as the root. No rank receives a message by which it could detect that.
const mindsCommand = "minds"

var minds = map[string]func(context.Context, *outrigger.Session) error{
	"reduce": func(ctx context.Context, s *outrigger.Session) error {
		return outrigger.Reduce(ctx, s.World(), make([]int64, 4), make([]int64, 4), outrigger.Sum, ownRoot(s))
	},
	"gather": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		return outrigger.Gather(ctx, w, make([]int64, 1), make([]int64, w.Size()), ownRoot(s))
	},
	"gatherv": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		counts := make([]int, w.Size())
		for i := range counts {
			counts[i] = 1
		}
		return outrigger.Gatherv(ctx, w, make([]int64, 1), make([]int64, w.Size()), counts, nil, ownRoot(s))
	},
	"far ahead":   farAhead,
	"right":       skewed,
	"same blocks": sameBlocks,
}

func ownRoot(s *outrigger.Session) int {
	if s.World().Rank() == 1 {
		return 1
	}
	return 0
}

func minding(name string) int {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err = minds[name](ctx, s); err == nil && os.Getenv(stayVar) != "" {
		select {} // it computes
	}
	if err = errors.Join(err, s.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stayVar keeps ranks from leaving.
const stayVar = "OUTRIGGER_E2E_STAY"

// TestTwoRoots checks that the job reports at once which ranks named which root, long before a
// deadlock is suspected, whether the other ranks wait, compute or have left.
func TestTwoRoots(t *testing.T) {
	for name := range minds {
		if name == "far ahead" || name == "right" || name == "same blocks" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, []string{stayVar + "=1"}, "outrigger", "run", "-n", "5", "--pods", "2", "--", os.Args[0], mindsCommand, name)
			p.says("ranks disagree about a collective: ")
			p.says("the job goes on")
			line := p.out.String()
			line = line[strings.Index(line, "ranks disagree"):]
			line, _, _ = strings.Cut(line, "\n")
			for _, side := range []string{"rank 1 is in " + name + " of root 1", " in " + name + " of root 0"} { // of whom else is there by then
				if !strings.Contains(line, side) {
					t.Errorf("%q does not say %q", line, side)
				}
			}
			p.signal(unix.SIGINT)
			p.wait(130)
		})
	}
}

// TestFarAhead: rank 1 has called a thousand more collectives since the one with the wrong
// root, and computes, when the rank that waits in that collective is asked. The disagreement
// is reported.
func TestFarAhead(t *testing.T) {
	t.Parallel()
	p := spawn(t, []string{stayVar + "=1"}, "outrigger", "run", "-n", "3", "--pods", "2", "--", os.Args[0], mindsCommand, "far ahead")
	p.says("ranks disagree about a collective: rank 0 is in gather of root 0, rank 1 was in gather of root 2")
	p.signal(unix.SIGINT)
	p.wait(130)
}

// farAhead: rank 1 names another root once, and then rank 0, which is late, a thousand times.
// Rank 2 calls no collective.
func farAhead(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	switch w.Rank() {
	case 0:
		<-time.After(time.Second) // it computes
	case 2:
		return nil
	}
	for i := range 1000 {
		root := 0
		if i == 0 && w.Rank() == 1 {
			root = 2
		}
		if err := outrigger.Gather(ctx, w, make([]int64, 1), make([]int64, w.Size()), root); err != nil {
			return err
		}
	}
	return nil
}

// TestTwoRootsFail checks that two roots fail the job with --deadlock-fails.
func TestTwoRootsFail(t *testing.T) {
	t.Parallel()
	p := spawn(t, []string{stayVar + "=1"}, "outrigger", "run", "-n", "3", "--pods", "2", "--deadlock-fails", "--", os.Args[0], mindsCommand, "gather")
	p.says("job failed: ranks disagree about a collective: ")
	p.says("rank 1 is in gather of root 1")
	p.wait(124)
}

// TestTwoRootsAndLeft: other ranks leave, and rank 1 fails because it waits for them. The
// job's verdict names the disagreement.
func TestTwoRootsAndLeft(t *testing.T) {
	for _, name := range []string{"reduce", "gather"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--timeout", "30s"}, 5, 2, os.Args[0], mindsCommand, name).wait()
			verdict := out[max(strings.LastIndex(out, "job failed: "), 0):]
			for _, want := range []string{ // some may come too late to be of any mind
				"job failed: ranks disagree about a collective: ", "rank 1 was in " + name + " of root 1", " in " + name + " of root 0", "; then rank ",
			} {
				if code != 1 || !strings.Contains(verdict, want) {
					t.Errorf("exit code %d, and the verdict does not say %q\n%s", code, want, out)
				}
			}
		})
	}
}

// TestSkewedRanksAgree checks that nothing is reported of a right program whose ranks are many
// collectives apart, in communicators with equal numbers.
func TestSkewedRanksAgree(t *testing.T) {
	t.Parallel()
	code, out := startWith(t, []string{"--timeout", "60s"}, 5, 2, os.Args[0], mindsCommand, "right").wait()
	if code != 0 || strings.Contains(out, "disagree") || strings.Contains(out, "goes on") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// skewed: rank 4 is late repeatedly, by more than the interval of the checks. Ranks that only
// send are far ahead meanwhile, and the halves of a split call different collectives.
func skewed(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	half, err := w.Split(ctx, w.Rank()%2, 0)
	if err != nil {
		return err
	}
	one, many := []int64{1}, make([]int64, w.Size())
	for round := range 3 {
		if w.Rank() == 4 {
			<-time.After(1200 * time.Millisecond) // it computes
		}
		for i := range 20 {
			err = errors.Join(err, outrigger.Reduce(ctx, w, one, many[:1], outrigger.Sum, (4+i%2)%5), outrigger.Gather(ctx, w, one, many, 4))
		}
		if w.Rank()%2 == 0 {
			err = errors.Join(err, half.Barrier(ctx), outrigger.Reduce(ctx, half, one, many[:1], outrigger.Sum, round))
		} else {
			err = errors.Join(err, outrigger.Bcast(ctx, half, one, 0), half.Barrier(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameBlocks: a reduce-scatter of equal blocks is one collective, with and without
// counts, and its result is right; others are too with operations of any order.
func sameBlocks(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	for _, n := range []int{1, 3, 2000, 30000} {
		for _, op := range []outrigger.Op{outrigger.Sum, outrigger.OpFunc(false, func(a, b []int64) {
			for i := range a {
				a[i] += b[i]
			}
		})} {
			in, out := make([]int64, n*w.Size()), make([]int64, n)
			for i := range in {
				in[i] = int64(i + w.Rank())
			}
			var counts []int
			if w.Rank()%2 == 1 {
				counts = make([]int, w.Size())
				for i := range counts {
					counts[i] = n
				}
			}
			if err := outrigger.ReduceScatter(ctx, w, in, out, counts, op); err != nil {
				return err
			}
			for i, got := range out {
				if want := int64(w.Size()*(n*w.Rank()+i) + w.Size()*(w.Size()-1)/2); got != want {
					return fmt.Errorf("element %d of %d is %d, want %d", i, n, got, want)
				}
			}
		}
	}
	return nil
}

func TestEqualCountsAreNone(t *testing.T) {
	t.Parallel()
	code, out := startWith(t, []string{"--timeout", "60s"}, 5, 2, os.Args[0], mindsCommand, "same blocks").wait()
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
