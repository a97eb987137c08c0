package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// mistakeCommand makes the test binary a program with a mistake in it.
const mistakeCommand = "mistake"

// mistakes are what the ranks of a job do; rank 1 is to blame.
var mistakes = map[string]func(context.Context, *outrigger.Session) error{
	"wrong size": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return errors.Join(outrigger.Send(ctx, w, make([]float64, 100), 1, 7), w.Barrier(ctx), s.Close())
		}
		_, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7)
		return err
	},
	"wrong type": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return errors.Join(outrigger.Send(ctx, w, make([]int32, 3), 1, 7), w.Barrier(ctx), s.Close())
		}
		_, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7)
		return err
	},
	"closed peer": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return s.Close()
		}
		_, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7)
		return err
	},
	"forgotten Close": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			return nil
		}
		return errors.Join(s.World().Barrier(ctx), s.Close())
	},
	"panic": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			var list []int
			_ = list[len(os.Args)] // what is tested
		}
		return s.World().Barrier(ctx)
	},
	"exit 3": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			os.Exit(3)
		}
		return s.World().Barrier(ctx)
	},
	"abort": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			return s.Abort(5, "the matrix is singular")
		}
		return s.World().Barrier(ctx)
	},
	"SIGSEGV": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			if err := unix.Kill(os.Getpid(), unix.SIGSEGV); err != nil {
				return err
			}
			select {}
		}
		return s.World().Barrier(ctx)
	},
	"arena used up": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 1 {
			for {
				if _, err := outrigger.Alloc[float64](s, 1<<20); err != nil {
					return err
				}
			}
		}
		return s.World().Barrier(ctx)
	},
}

func mistake(name string) int {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err == nil {
		err = mistakes[name](ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestMistakes is what a person sees of twenty mistakes: cause, rank and what to
// do. Those that hang (wrong tag, head to head, missing rank) are asked about as
// --timeout does; TestWhy has more of them, and TestRanksDisagree of collectives.
// A sidecar that is stopped is TestSidecarStoppedForGood.
func TestMistakes(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain.txt")
	if err := os.WriteFile(plain, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: a}\nspec: {rank: 4}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hang := func(name string) []string {
		return []string{"run", "-n", fmt.Sprint(max(hangs[name].ranks, 3*btoi(disagreements[name].play != nil))), "--pods", "2", "--timeout", "4s", "--", os.Args[0], hangingCommand, name}
	}
	makes := func(name string, flags ...string) []string {
		return append(append([]string{"run", "-n", "2", "--pods", "2"}, flags...), "--", os.Args[0], mistakeCommand, name)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"wrong tag":        {hang("wrong tag"), 124, []string{"rank 1 waits", "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)", "not finished within 4s"}},
		"head to head":     {hang("head to head"), 124, []string{"ranks 0 and 1 wait for each other", "send to 1 tag 3, 8 MiB, no receive"}},
		"missing rank":     {hang("missing rank"), 124, []string{"rank 2 waits for no message: the program computes"}},
		"other collective": {hang("other collective"), 1, []string{"disagrees with rank", "barrier", "allgather"}},
		"other root":       {hang("other root"), 1, []string{"disagrees with rank", " on bcast: root "}},
		"wrong size":       {makes("wrong size"), 1, []string{"rank 1: recv with rank 0 tag 7 (80 bytes): the message is longer than the buffer: 800 bytes", "job failed: rank 1 (pod 1) exited with code 1"}},
		"wrong type":       {makes("wrong type"), 1, []string{"rank 1: recv with rank 0 tag 7", "a message of 12 bytes is no whole number of elements of 8: its sender has another type", "job failed: rank 1 (pod 1)"}},
		"closed peer":      {makes("closed peer"), 1, []string{"rank 1: recv with rank 0 tag 7 (80 bytes): the peer has failed or left: it has closed its session"}},
		"forgotten Close":  {makes("forgotten Close"), 1, []string{"job failed: rank 1 (pod 1) failed: its process ended without closing its session: call Close before the program ends"}},
		"panic":            {makes("panic"), 2, []string{"[1] panic: runtime error: index out of range", "job failed: rank 1 (pod 1) exited with code 2"}},
		"exit 3":           {makes("exit 3"), 3, []string{"job failed: rank 1 (pod 1) exited with code 3"}},
		"abort":            {makes("abort"), 5, []string{"job failed: rank 1 (pod 1) failed: called abort: the matrix is singular"}},
		"SIGSEGV":          {makes("SIGSEGV"), 2, []string{"[1] SIGSEGV: segmentation violation", "job failed: rank 1 (pod 1) exited with code 2"}},
		"arena used up":    {makes("arena used up", "--arena", "32"), 1, []string{"rank 1: alloc (8388608 bytes): not enough arena memory: 8 MiB wanted, 0 B of 32 MiB free; raise memory.arena of the MPIJob, --arena of outrigger run, or OUTRIGGER_ARENA"}},
		"missing program":  {[]string{"run", "-n", "2", "--", "./solver"}, 127, []string{"job failed: program ./solver: stat ./solver: no such file or directory"}},
		"not executable":   {[]string{"run", "-n", "2", "--", plain}, 126, []string{"plain.txt: permission denied"}},
		"huge arena":       {[]string{"run", "-n", "2", "--arena", "100000000", "--", os.Args[0]}, 1, []string{"memory.arenaBytes is 95.4 TiB, want 0 or 64 KiB to 16 TiB"}},
		"bad flag":         {[]string{"run", "--rank", "4", "--", "true"}, 1, []string{"unknown flag: --rank; `outrigger run --help` lists the flags"}},
		"bad value":        {[]string{"run", "-n", "four", "--", "true"}, 1, []string{"invalid argument \"four\" for \"-n, --ranks\" flag: want a number; `outrigger run --help`"}},
		"bad size":         {[]string{"run", "--arena", "many", "--", "true"}, 1, []string{"\"many\" is no size: want one such as 512MiB, 512Mi or 512M"}},
		"bad file":         {[]string{"run", "-f", bad}, 1, []string{"bad.yaml: MPIJob a: unknown field \"spec.rank\""}},
		"missing file":     {[]string{"run", "-f", "no-such.yaml"}, 1, []string{"no-such.yaml: no such file or directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			p := spawn(t, nil, "outrigger", c.args...)
			p.wait(c.code)
			t.Logf("told and over after %v", time.Since(begun).Round(10*time.Millisecond)) // of a hang: 4 s are its time
			out := p.out.String()
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q", want)
				}
			}
			if strings.Contains(out, "strconv") || strings.Contains(out, "invalid syntax") {
				t.Errorf("it talks Go")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
