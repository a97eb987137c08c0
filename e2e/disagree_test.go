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

// Ranks that are of two minds about a collective in which none of them hears of the
// other's: this test binary, as the ranks of a job, has rank 1 for a root of its own.
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

// TestTwoRoots: the job says at once who is of which mind, long before a deadlock is
// suspected, whether the others wait, compute or have left.
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

// TestFarAhead: a rank that only sends is a thousand collectives behind the one that it
// has another root for, and computes, when the one that waits there is asked; the wrong
// root has not come to it. It is told all the same.
func TestFarAhead(t *testing.T) {
	t.Parallel()
	p := spawn(t, []string{stayVar + "=1"}, "outrigger", "run", "-n", "3", "--pods", "2", "--", os.Args[0], mindsCommand, "far ahead")
	p.says("ranks disagree about a collective: rank 0 is in gather of root 0, rank 1 was in gather of root 2")
	p.signal(unix.SIGINT)
	p.wait(130)
}

// farAhead: rank 1 sends to another root once, and then for long to rank 0, which comes
// late. Rank 2 does not come.
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

// TestTwoRootsFail: the same is a failure where a suspected deadlock is to be one.
func TestTwoRootsFail(t *testing.T) {
	t.Parallel()
	p := spawn(t, []string{stayVar + "=1"}, "outrigger", "run", "-n", "3", "--pods", "2", "--deadlock-fails", "--", os.Args[0], mindsCommand, "gather")
	p.says("job failed: ranks disagree about a collective: ")
	p.says("rank 1 is in gather of root 1")
	p.wait(124)
}

// TestTwoRootsAndLeft: others leave, and rank 1 fails because it waits for them. The
// job's verdict is what they disagreed on.
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

// TestSkewedRanksAgree: a right program whose ranks are many collectives apart, with
// communicators of one number, is never told anything.
func TestSkewedRanksAgree(t *testing.T) {
	t.Parallel()
	code, out := startWith(t, []string{"--timeout", "60s"}, 5, 2, os.Args[0], mindsCommand, "right").wait()
	if code != 0 || strings.Contains(out, "disagree") || strings.Contains(out, "goes on") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// skewed: rank 4 is late again and again, by more than a look takes; those that only
// send go far ahead meanwhile, the halves of a split do other things.
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
