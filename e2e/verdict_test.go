package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// endCommand runs the test binary as a program whose ranks end in different ways.
const endCommand = "end"

// end is one rank. Errors and closes are left out on purpose.
func end(how string) int {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	one := s.World().Rank() == 1
	if err := s.World().Barrier(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch how {
	case "no rank closes":
		return 0
	case "rank 1 does not close":
		if one {
			return 0
		}
		return code(errors.Join(s.World().Barrier(ctx), s.Close()))
	case "rank 1 closes early":
		if one {
			return code(s.Close())
		}
		return code(s.World().Barrier(ctx)) // it ends without Close
	case "rank 1 skips a collective":
		for i := range 100 {
			if one && i == 50 {
				continue
			}
			if err := outrigger.AllreduceInPlace(ctx, s.World(), []int64{1}, outrigger.Sum); err != nil {
				return code(err)
			}
		}
		return code(s.Close())
	case "rank 1 receives too little":
		if s.World().Rank() == 0 {
			_ = outrigger.Send(ctx, s.World(), make([]int64, 9), 1, 5) // it ends with the job
		}
		if one {
			_, err = outrigger.Recv(ctx, s.World(), make([]int64, 3), 0, 5)
			return code(err)
		}
		return code(s.World().Barrier(ctx))
	case "rank 1 leaves its socket to a daemon":
		if one {
			return leaveSocket()
		}
		_, err = outrigger.Recv(ctx, s.World(), make([]byte, 8), 1, 0) // ends with the job
		return code(err)
	case "rank 1 becomes another program":
		if one {
			return code(unix.Exec("/bin/sleep", []string{"sleep", "60"}, os.Environ()))
		}
		return code(s.World().Barrier(ctx)) // its neighbour ends badly, the other program as its launcher tells it
	case "rank 1 becomes another program, and no other looks":
		if one {
			return code(unix.Exec("/bin/sleep", []string{"sleep", "600"}, os.Environ()))
		}
		time.Sleep(10 * time.Minute) // it ends as its launcher tells it
		return 0
	case "rank 1 ends well without closing, and no other looks":
		if one {
			return 0
		}
		time.Sleep(10 * time.Minute) // as above
		return 0
	case "abort and end well":
		if one {
			err = s.Abort(3, "no sense")
		}
		_ = s.World().Barrier(ctx) // ends with the job
		return code(err)
	case "abort and exit":
		if one {
			_ = s.Abort(1, "no sense") // it is what is tested
			return 7
		}
		return code(s.World().Barrier(ctx))
	case "abort with 256":
		return code(s.Abort(256, "no sense"))
	case "obey", "obey but rank 0": // SIGTERM, at once and badly
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGTERM)
		if how == "obey" || s.World().Rank() != 0 {
			go func() { <-signals; os.Exit(1) }()
		}
		fmt.Fprintf(os.Stdout, "rank %d is process %d\n", s.World().Rank(), os.Getpid())
		for err == nil {
			err = s.World().Barrier(ctx)
		}
		return code(err)
	}
	return 64
}

// leaveSocket starts a daemon that keeps the sockets of this process open.
func leaveSocket() int {
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	list, err := os.ReadDir("/proc/self/fd")
	for _, f := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(to, "socket:") { // "": it was closed
			fd, _ := strconv.Atoi(f.Name()) // a number
			cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), to))
		}
	}
	return code(errors.Join(err, cmd.Start()))
}

func code(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestOneTruth checks that `outrigger run` prints the failure that the sidecars know, and
// exits with its code, also if every rank has exited with 0.
func TestOneTruth(t *testing.T) {
	for how, c := range map[string]struct {
		code int
		want []string
	}{
		"no rank closes":                                       {1, []string{"job failed: rank ", "failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"rank 1 does not close":                                {1, []string{"job failed: rank 1 (pod 0) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"rank 1 closes early":                                  {1, []string{"job failed: rank 1 (pod 0) closed its session while rank ", " waited for it in barrier: all ranks of a communicator call its collectives, in one order, before they close\n"}},
		"rank 1 skips a collective":                            {1, []string{"job failed: rank 1 (pod 0) closed its session while rank ", " waited for it in allreduce: all ranks"}},
		"rank 1 receives too little":                           {1, []string{"job failed: rank 1 (pod 0) exited with code 1: recv with rank 0 tag 5 (24 bytes): the message is longer than the buffer: 72 bytes\n"}},
		"rank 1 leaves its socket to a daemon":                 {1, []string{"job failed: rank 1 (pod 0) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"rank 1 becomes another program":                       {1, []string{"job failed: rank 1 (pod 0) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"rank 1 becomes another program, and no other looks":   {1, []string{"job failed: rank 1 (pod 0) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"rank 1 ends well without closing, and no other looks": {1, []string{"job failed: rank 1 (pod 0) failed: its process ended without closing its session: call Close (MPI_Finalize) before the program ends, or becomes another one\n"}},
		"abort and end well":                                   {3, []string{"job failed: rank 1 (pod 0) failed: called abort: no sense\n"}},
		"abort and exit":                                       {1, []string{"job failed: rank 1 (pod 0) failed: called abort: no sense\n"}},
		"abort with 256":                                       {1, []string{"called abort: no sense\n"}},
	} {
		t.Run(how, func(t *testing.T) {
			j := start(t, 4, 2, testBinary(t), endCommand, how)
			code, out := j.wait()
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, "level=ERROR") {
				t.Errorf("a sidecar has said so too:\n%s", out)
			}
			log, err := os.ReadFile(filepath.Join(j.dir, "pod0", "sidecar.log"))
			if err != nil || !strings.Contains(string(log), "job failed") {
				t.Errorf("the log of pod 0's sidecar: %v\n%s", err, log)
			}
		})
	}
}

// TestGuiltyIsTold checks that the error at the other ranks names the rank that failed, and
// not a rank that its launcher has ended because of that.
func TestGuiltyIsTold(t *testing.T) {
	t.Parallel()
	const text = `go=$1; shift; if [ $OUTRIGGER_RANK = 1 ]; then until [ -e "$go" ]; do sleep 0.05; done; exit 3; fi; exec "$0" "$@"`
	program, begun := ring("-rounds", "9"), filepath.Join(t.TempDir(), "begun")
	j := start(t, 4, 2, append([]string{"sh", "-c", text, program[0], begun}, program[1:]...)...)
	for _, rank := range []string{"0", "2", "3"} {
		j.waitFor(`rank ` + rank + ` is process (\d+)`)
	}
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := j.wait()
	if code != 3 || !strings.Contains(out, "job failed: rank 1 (pod 0) exited with code 3\n") || !strings.Contains(out, "the job has failed: rank 1 failed: its process ended badly") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if strings.Contains(out, "the job has failed: rank 0") {
		t.Errorf("rank 0 was ended for rank 1\n%s", out)
	}
}

var (
	kills = flag.Int("kills", 6, "how many ranks, or sidecars, the Killed tests kill")
	busy  = flag.Int("kills.busy", 0, "how many busy loops run at the same time")
)

// TestRankKilledOften checks that a killed rank is named with its signal, at whatever time it
// is killed, although the other ranks of its pod fail as soon as their launcher ends them.
func TestRankKilledOften(t *testing.T) {
	t.Parallel()
	startLoops(t)
	wrong := 0
	for n := range *kills {
		j := start(t, 4, 2, testBinary(t), endCommand, "obey")
		var pids [4]int
		for rank := range pids {
			pids[rank] = number(t, j.waitFor(fmt.Sprintf(`rank %d is process (\d+)`, rank))[1])
		}
		time.Sleep(rand.N(20 * time.Millisecond)) //nolint:gosec // any moment
		victim := rand.IntN(len(pids))            //nolint:gosec // any rank
		if err := unix.Kill(pids[victim], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		code, out := j.wait()
		want := fmt.Sprintf("job failed: rank %d (pod %d) was killed by SIGKILL\n", victim, victim/2)
		if code != 128+9 || !strings.Contains(out, want) {
			wrong++
			t.Errorf("kill %d: exit code %d, want %q\n%s", n, code, want, out)
		}
	}
	t.Logf("%d ranks killed, %d verdicts wrong", *kills, wrong)
}

// TestSidecarKilledOften checks the same for sidecars, from their start on: while ranks
// attach, before sidecars have connected, and later.
func TestSidecarKilledOften(t *testing.T) {
	t.Parallel()
	startLoops(t)
	wrong := 0
	for n := range *kills {
		j := start(t, 4, 2, testBinary(t), endCommand, "obey")
		pod := rand.IntN(2) //nolint:gosec // any pod
		pid := j.sidecarPID(pod)
		after := rand.N(100 * time.Millisecond) //nolint:gosec // any moment
		time.Sleep(after)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		code, out := j.wait()
		want := fmt.Sprintf("job failed: the sidecar of pod %d (ranks %d-%d) ended: killed by SIGKILL\n", pod, 2*pod, 2*pod+1)
		if code != 1 || !strings.Contains(out, want) {
			wrong++
			t.Errorf("kill %d, after %v: exit code %d, want %q\n%s", n, after, code, want, out)
		}
	}
	t.Logf("%d sidecars killed, %d verdicts wrong", *kills, wrong)
}

// TestSidecarKilledIsTold checks that the error at a remaining rank names the lost sidecar,
// and not the ranks that were ended because of it.
func TestSidecarKilledIsTold(t *testing.T) {
	t.Parallel()
	j := start(t, 4, 2, testBinary(t), endCommand, "obey but rank 0")
	for rank := range 4 {
		j.waitFor(fmt.Sprintf("rank %d is process", rank))
	}
	if err := unix.Kill(j.sidecarPID(1), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const lost = "the sidecar of pod 1 (ranks 2-3) ended: killed by SIGKILL\n"
	code, out := j.wait()
	if code != 1 || !strings.Contains(out, "job failed: "+lost) || !strings.Contains(out, "ended by its launcher: "+lost) || strings.Contains(out, "without closing") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func startLoops(t *testing.T) {
	t.Helper()
	for range *busy {
		loop := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = loop.Process.Kill(), loop.Wait() }) // it ends by that
	}
}
