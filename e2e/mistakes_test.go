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

// mistakeCommand runs the test binary as a program with a mistake.
const mistakeCommand = "mistake"

// mistakes are the programs by name; rank 1 makes the mistake.
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
	"wrong type of one size": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return errors.Join(outrigger.Ssend(ctx, w, make([]int64, 3), 1, 7), w.Barrier(ctx), s.Close())
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
	"closed in a collective": func(ctx context.Context, s *outrigger.Session) error {
		if s.World().Rank() == 0 {
			return s.Close()
		}
		return s.World().Barrier(ctx)
	},
	"ssend to who has closed": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return s.Close()
		}
		if _, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7); !errors.Is(err, outrigger.ErrPeerFailed) {
			return err
		}
		return outrigger.Ssend(ctx, w, make([]float64, 10), 0, 7)
	},
	"send to who has closed": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return s.Close()
		}
		if _, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7); !errors.Is(err, outrigger.ErrPeerFailed) {
			return err // now the sidecar knows
		}
		r, err := outrigger.Isend(w, make([]float64, 10), 0, 7)
		if err == nil {
			_, err = r.Wait(ctx)
		}
		return err
	},
	"copied send to who has closed": func(ctx context.Context, s *outrigger.Session) error {
		w := s.World()
		if w.Rank() == 0 {
			return s.Close()
		}
		if _, err := outrigger.Recv(ctx, w, make([]float64, 10), 0, 7); !errors.Is(err, outrigger.ErrPeerFailed) {
			return err
		}
		return errors.Join(outrigger.Send(ctx, w, make([]float64, 10), 0, 7), s.Close())
	},
	"out of a window": inWindow(func(ctx context.Context, w *outrigger.Window[int64]) error { return w.Put(ctx, []int64{1, 2}, 0, 15) }),
	"out of an uneven window": func(ctx context.Context, s *outrigger.Session) error {
		mem, err := outrigger.Alloc[int64](s, 16)
		if err != nil {
			return err
		}
		w, err := outrigger.NewWindow(ctx, s.World(), mem[:8*(1+s.World().Rank())])
		if err == nil && s.World().Rank() == 1 {
			_, err = w.FetchOp(ctx, 1, 0, 8, outrigger.Sum)
		}
		return errors.Join(err, s.World().Barrier(ctx))
	},
	"a lock at Close": func(ctx context.Context, s *outrigger.Session) error {
		w, err := window(ctx, s.World())
		if err == nil && s.World().Rank() == 1 {
			err = w.Lock(ctx, 0, true)
		}
		return errors.Join(err, s.World().Barrier(ctx), s.Close())
	},
	"a receive at Close": func(_ context.Context, s *outrigger.Session) error {
		var err error
		if s.World().Rank() == 1 {
			_, err = outrigger.Irecv(s.World(), make([]float64, 10), 0, 7)
		}
		return errors.Join(err, s.Close())
	},
	"a collective at Close": func(_ context.Context, s *outrigger.Session) error {
		var err error
		if s.World().Rank() == 1 {
			_, err = s.World().Ibarrier()
		}
		return errors.Join(err, s.Close())
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

// inWindow: rank 1 makes a mistake with a window of 16 elements a rank.
func inWindow(play func(context.Context, *outrigger.Window[int64]) error) func(context.Context, *outrigger.Session) error {
	return func(ctx context.Context, s *outrigger.Session) error {
		w, err := window(ctx, s.World())
		if err == nil && s.World().Rank() == 1 {
			err = play(ctx, w)
		}
		return errors.Join(err, s.World().Barrier(ctx))
	}
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

// TestMistakes checks the output of twenty mistakes: cause, rank and remedy. For those that
// hang (wrong tag, head to head, missing rank) it checks the report of --timeout; TestWhy has
// more of them, and TestRanksDisagree has those of collectives. TestSidecarStoppedForGood has
// stopped sidecars.
func TestMistakes(t *testing.T) {
	t.Parallel()
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	bad := write("bad.yaml", "apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: a}\nspec: {rank: 4}\n")
	plain := write("plain.txt", "text\n")
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
		"wrong tag":                     {hang("wrong tag"), 124, []string{"rank 1 waits", "recv from 0 tag 8; unexpected here: from 0 tag 7, 800 B (a wrong tag?)", "not finished within 4s"}},
		"head to head":                  {hang("head to head"), 124, []string{"ranks 0 and 1 wait for each other", "send to 1 tag 3, 8 MiB, no receive"}},
		"missing rank":                  {hang("missing rank"), 124, []string{"rank 2 waits for no message: the program computes"}},
		"other collective":              {hang("other collective"), 1, []string{"disagrees with rank", "barrier", "allgather"}},
		"other root":                    {hang("other root"), 1, []string{"disagrees with rank", " on bcast: root "}},
		"wrong size":                    {makes("wrong size"), 1, []string{"rank 1: recv with rank 0 tag 7 (80 bytes): the message is longer than the buffer: 800 bytes", "job failed: rank 1 (pod 1) exited with code 1"}},
		"wrong type":                    {makes("wrong type"), 1, []string{"rank 1: recv with rank 0 tag 7", "the message has elements of type int32, and the buffer float64", "job failed: rank 1 (pod 1)"}},
		"wrong type of one size":        {makes("wrong type of one size"), 1, []string{"rank 1: recv with rank 0 tag 7", "the message has elements of type int64, and the buffer float64", "job failed: rank 1 (pod 1)"}},
		"closed peer":                   {makes("closed peer"), 1, []string{"rank 1: recv with rank 0 tag 7 (80 bytes): the peer has failed or left: it has closed its session"}},
		"ssend to who has closed":       {makes("ssend to who has closed"), 1, []string{"rank 1: ssend with rank 0 tag 7 (80 bytes): the peer has failed or left: it has closed its session"}},
		"send to who has closed":        {makes("send to who has closed"), 1, []string{"rank 1: isend with rank 0 tag 7 (80 bytes): the peer has failed or left: it has closed its session"}},
		"copied send to who has closed": {makes("copied send to who has closed"), 1, []string{"outrigger: rank 1: close: send with rank 0 tag 7 (80 bytes): the peer has failed or left: it has closed its session"}},
		"out of a window":               {makes("out of a window"), 1, []string{"rank 1: put with rank 0 (16 bytes): invalid argument: 2 elements from 15 on, of window 1, which has 16 elements at rank 0"}},
		"out of an uneven window":       {makes("out of an uneven window"), 1, []string{"rank 1: fetch with rank 0: invalid argument: 1 elements from 8 on, of window 1, which has 8 elements at rank 0"}},
		"a lock at Close":               {makes("a lock at Close"), 1, []string{"rank 1: close: invalid argument: this rank still has the lock of window 1 at world rank 0; Unlock it first"}},
		"a receive at Close":            {makes("a receive at Close"), 1, []string{"outrigger: rank 1: close: irecv with rank 0 tag 7 (80 bytes): invalid argument: it is open, and no goroutine waits for it; Wait for it or Cancel it before Close"}},
		"a collective at Close":         {makes("a collective at Close"), 1, []string{"outrigger: rank 1: close: barrier: invalid argument: it is open, and no goroutine waits for it; Wait for it before Close"}},
		"closed in a collective":        {makes("closed in a collective"), 1, []string{"rank 1: barrier with rank 0: the peer has failed or left: it has closed its session"}},
		"forgotten Close":               {makes("forgotten Close"), 1, []string{"job failed: rank 1 (pod 1) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one"}},
		"panic":                         {makes("panic"), 2, []string{"[1] panic: runtime error: index out of range", "job failed: rank 1 (pod 1) exited with code 2"}},
		"exit 3":                        {makes("exit 3"), 3, []string{"job failed: rank 1 (pod 1) exited with code 3"}},
		"abort":                         {makes("abort"), 5, []string{"job failed: rank 1 (pod 1) failed: called abort: the matrix is singular"}},
		"SIGSEGV":                       {makes("SIGSEGV"), 2, []string{"[1] SIGSEGV: segmentation violation", "job failed: rank 1 (pod 1) exited with code 2"}},
		"arena used up":                 {makes("arena used up", "--arena", "32"), 1, []string{"rank 1: alloc (8 MiB): not enough arena memory: 8 MiB wanted, 0 B of 32 MiB free; raise memory.arena of the MPIJob, --arena of outrigger run, or OUTRIGGER_ARENA"}},
		"missing program":               {[]string{"run", "-n", "2", "--", "./solver"}, 127, []string{"job failed: program ./solver: no such file or directory"}},
		"not executable":                {[]string{"run", "-n", "2", "--", plain}, 126, []string{"plain.txt: permission denied"}},
		"huge arena":                    {[]string{"run", "-n", "2", "--arena", "100000000", "--", os.Args[0]}, 1, []string{"memory.arenaBytes is 95.4 TiB, want 0 or 64 KiB to 16 TiB"}},
		"no command":                    {[]string{"rnu", "-n", "4", "true"}, 1, []string{"outrigger: unknown command \"rnu\" (run?); `outrigger --help` lists the commands"}},
		"bad flag":                      {[]string{"run", "--rank", "4", "--", "true"}, 1, []string{"unknown flag: --rank; `outrigger run --help` lists the flags"}},
		"bad value":                     {[]string{"run", "-n", "four", "--", "true"}, 1, []string{"invalid argument \"four\" for \"-n, --ranks\" flag: want a number; `outrigger run --help`"}},
		"bad size":                      {[]string{"run", "--arena", "many", "--", "true"}, 1, []string{"invalid size \"many\": want one such as 512MiB, 512Mi or 512M"}},
		"bad file":                      {[]string{"run", "-f", bad}, 1, []string{"bad.yaml: MPIJob a: line 4: unknown field \"spec.rank\": is ranks meant?"}},
		"no trace":                      {[]string{"trace", plain}, 1, []string{"plain.txt is no trace: byte 2 is not valid JSON"}},
		"empty trace":                   {[]string{"trace", write("empty.json", "")}, 1, []string{"empty.json is no trace: it is empty"}},
		"cut trace":                     {[]string{"trace", write("cut.json", `{"traceEvents":[{"ph":"X",`)}, 1, []string{"cut.json is no trace: it is incomplete, 26 B"}},
		"other JSON":                    {[]string{"trace", write("list.json", "[1]")}, 1, []string{"list.json is no trace: it is a JSON array: want an object with traceEvents, as outrigger run --trace writes it"}},
		"other events":                  {[]string{"trace", write("five.json", `{"traceEvents":5}`)}, 1, []string{"five.json is no trace: its field traceEvents is a JSON number"}},
		"image without a name":          {[]string{"image", write("Bad_", "")}, 1, []string{"\"Bad_:dev\" is no image's name", "; name it with -t"}},
		"missing file":                  {[]string{"run", "-f", "no-such.yaml"}, 1, []string{"no-such.yaml: no such file or directory"}},
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
			if strings.Contains(out, "strconv") || strings.Contains(out, "json:") || strings.Contains(out, "invalid syntax") {
				t.Errorf("it talks Go")
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// TestMistakeOfLimits checks that a limit of open files that is too low for the ranks of a pod
// is an error that names the limit, whatever could not be opened.
func TestMistakeOfLimits(t *testing.T) {
	for _, files := range []int{12, 22, 30} { // for a sidecar, for a launcher, for a rank
		p := spawn(t, nil, "/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" run -n 64 --pods 2 -- "$1"`, files), filepath.Join(bin, "outrigger"), filepath.Join(bin, "hello"))
		<-p.done
		if out := p.out.String(); p.cmd.ProcessState.Success() || !strings.Contains(out, "job failed: ") || !strings.Contains(out, "raise the limit of open files (ulimit -n)") || !strings.Contains(out, "too many open files") {
			t.Errorf("%d files: %v\n%s", files, p.cmd.ProcessState, out)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
