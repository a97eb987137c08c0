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

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Ranks that open a session again after they have closed one: this test binary, as the ranks
// of a job.
const againCommand = "again"

var scenes = map[string]func(context.Context) error{
	"many":     manySessions,
	"early":    earlySecond,
	"one less": oneSessionLess,
}

// Scenes for two ranks of one pod.
const (
	givesUp       = "gives up"
	leavesWelcome = "leaves its welcome"
	neverAttaches = "never attaches"
)

func again(scene string) int {
	run := scenes[scene]
	switch scene {
	case givesUp:
		run = givenUp
	case leavesWelcome:
		run = unreadWelcome
	case neverAttaches:
		run = oneNeverAttaches
	}
	if farApart[scene] != nil {
		run = func(ctx context.Context) error { return lateSecond(ctx, farApart[scene]) }
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestAgain checks that later sessions of a rank receive nothing of its earlier ones, however
// far the ranks are apart.
func TestAgain(t *testing.T) {
	t.Parallel()
	for scene := range scenes {
		for _, pods := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s in %d pods", scene, pods), func(t *testing.T) {
				t.Parallel()
				code, out := start(t, 4, pods, os.Args[0], againCommand, scene).wait()
				if code != 0 || strings.Contains(out, "panic") {
					t.Errorf("exit code %d\n%s", code, out)
				}
			})
		}
	}
}

// farApart are the second sessions of programs in which some ranks begin them late. The first
// sessions have other collectives, or no communication between pods.
var farApart = map[string][]func(context.Context, *outrigger.Comm) error{
	"other collectives": {
		func(ctx context.Context, w *outrigger.Comm) error {
			return errors.Join(outrigger.Bcast(ctx, w, make([]int64, 1), 0), outrigger.AllreduceInPlace(ctx, w, make([]int64, 1), outrigger.Sum))
		},
		func(ctx context.Context, w *outrigger.Comm) error { return w.Barrier(ctx) },
	},
	"from any rank": {
		func(context.Context, *outrigger.Comm) error { return nil },
		func(ctx context.Context, w *outrigger.Comm) error {
			if w.Rank() >= 2 {
				return outrigger.Send(ctx, w, make([]int64, 1), w.Rank()-2, 1)
			}
			_, err := outrigger.Recv(ctx, w, make([]int64, 1), outrigger.AnySource, 1)
			return err
		},
	},
}

// TestSecondSessionFarApart: the ranks of one pod begin their second session seconds before
// those of the other pod. No disagreement and no deadlock is reported.
func TestSecondSessionFarApart(t *testing.T) {
	t.Parallel()
	for scene := range farApart {
		t.Run(scene, func(t *testing.T) {
			t.Parallel()
			code, out := startWith(t, []string{"--deadlock-after", "1s", "--deadlock-fails"}, 4, 2, os.Args[0], againCommand, scene).wait()
			if code != 0 || strings.Contains(out, "disagree") || strings.Contains(out, "deadlock") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// lateSecond lets the ranks of the second pod compute between two sessions.
func lateSecond(ctx context.Context, parts []func(context.Context, *outrigger.Comm) error) error {
	rank := 0
	err := eachSession(ctx, func(w *outrigger.Comm) error {
		rank = w.Rank()
		return parts[0](ctx, w)
	})
	if err != nil {
		return err
	}
	if rank >= 2 {
		time.Sleep(5 * time.Second) // it computes: for longer than the looks that have to find the same
	}
	return eachSession(ctx, func(w *outrigger.Comm) error { return parts[1](ctx, w) })
}

// TestGivesUp checks that a rank whose wait for its second session ends by the rank's own time
// limit has not failed, and may try again.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	code, out := start(t, 2, 1, os.Args[0], againCommand, givesUp).wait()
	if code != 0 || strings.Count(out, "gave up") != 3 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// givenUp: rank 0 requests its second session while rank 1 is in its first one. Rank 1 leaves
// that session after rank 0 has given up.
func givenUp(ctx context.Context) error {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("outrigger-gives-up-%d", os.Getppid()))
	rank := 0
	first := func(w *outrigger.Comm) error {
		rank = w.Rank()
		for rank == 1 {
			if os.Remove(file) == nil {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	if err := eachSession(ctx, first); err != nil {
		return err
	}
	for range 3 * (1 - rank) {
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := outrigger.Open(soon, outrigger.Config{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a second session while rank 1 is in its first one: %w", err)
		}
		fmt.Fprintln(os.Stdout, "gave up")
	}
	if rank == 0 {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
	}
	return eachSession(ctx, func(w *outrigger.Comm) error { return w.Barrier(ctx) })
}

// TestUnreadWelcome checks that a rank whose wait for its session ends while the sidecar's
// answer is on its way has not failed, and may try again.
func TestUnreadWelcome(t *testing.T) {
	t.Parallel()
	if code, out := start(t, 2, 1, os.Args[0], againCommand, leavesWelcome).wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// unreadWelcome: before its first and its second session rank 0 gives up with its Welcome unread,
// twice. Rank 1's message may come before it has a session.
func unreadWelcome(ctx context.Context) error {
	for range 2 {
		for range 2 {
			if os.Getenv(names.EnvRank) == "0" {
				if err := leaveWelcome(os.Getenv(names.EnvSocket)); err != nil {
					return err
				}
			}
		}
		err := eachSession(ctx, func(w *outrigger.Comm) error {
			if w.Rank() == 1 {
				return outrigger.Send(ctx, w, []int64{7}, 0, 0)
			}
			_, err := outrigger.Recv(ctx, w, make([]int64, 1), 1, 0)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveWelcome requests a session of rank 0, and closes the connection when the answer has
// arrived.
func leaveWelcome(socket string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // with the answer unread
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	h := shm.Hello{ABI: shm.ABIVersion, Features: shm.FeaturesAll}
	if _, err := unix.Write(fd, h.Encode()); err != nil {
		return err
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n > 0 || !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// TestOneNeverAttaches checks that a message to a rank whose process has ended without a
// session does not prevent the next session of other ranks.
func TestOneNeverAttaches(t *testing.T) {
	t.Parallel()
	if code, out := start(t, 2, 1, os.Args[0], againCommand, neverAttaches).wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func oneNeverAttaches(ctx context.Context) error {
	if os.Getenv("OUTRIGGER_RANK") == "1" {
		return nil
	}
	first := func(w *outrigger.Comm) error { return outrigger.Send(ctx, w, []int64{1}, 1, 7) }
	return eachSession(ctx, first, func(*outrigger.Comm) error { return nil })
}

// eachSession opens one session after the other, and runs a part of a scene in each.
func eachSession(ctx context.Context, parts ...func(w *outrigger.Comm) error) error {
	for i, part := range parts {
		s, err := outrigger.Open(ctx, outrigger.Config{})
		if err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		if err = errors.Join(part(s.World()), s.Close()); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

// manySessions runs a ring and a collective with different numbers in each session, with
// pauses of some ranks.
func manySessions(ctx context.Context) error {
	var parts []func(w *outrigger.Comm) error
	for i := range 12 {
		parts = append(parts, func(w *outrigger.Comm) error {
			mine, got := []int64{int64(1000*i + w.Rank())}, make([]int64, 1)
			from := (w.Rank() + w.Size() - 1) % w.Size()
			if _, err := outrigger.Sendrecv(ctx, w, mine, (w.Rank()+1)%w.Size(), 7, got, from, 7); err != nil {
				return err
			}
			if want := int64(1000*i + from); got[0] != want {
				return fmt.Errorf("rank %d has %d of rank %d, want %d", w.Rank(), got[0], from, want)
			}
			sum := make([]int64, 1)
			if err := outrigger.Allreduce(ctx, w, mine, sum, outrigger.Sum); err != nil {
				return err
			}
			if want := int64(4*1000*i + 6); sum[0] != want {
				return fmt.Errorf("rank %d has the sum %d, want %d", w.Rank(), sum[0], want)
			}
			if w.Rank() == i%4 {
				time.Sleep(20 * time.Millisecond) // the others come to the next one before it
			}
			return nil
		})
	}
	return eachSession(ctx, parts...)
}

// earlySecond: rank 0 sends in its second session while the other ranks are in their first
// one, and wait there for a message of rank 0. Their receives end with an error.
func earlySecond(ctx context.Context) error {
	buf := make([]int64, 1)
	first := func(w *outrigger.Comm) error {
		if w.Rank() == 0 {
			return nil
		}
		_, err := outrigger.Recv(ctx, w, buf, 0, 7)
		if !errors.Is(err, outrigger.ErrPeerFailed) || !strings.Contains(err.Error(), "closed its session") {
			return fmt.Errorf("a message of rank 0, which has left: %w", err)
		}
		time.Sleep(200 * time.Millisecond) // rank 0 sends meanwhile
		return nil
	}
	second := func(w *outrigger.Comm) error {
		if w.Rank() != 0 {
			_, err := outrigger.Recv(ctx, w, buf, 0, 7)
			if err == nil && buf[0] != 2 {
				err = fmt.Errorf("%d, want the second session's 2", buf[0])
			}
			return err
		}
		for to := 1; to < w.Size(); to++ {
			if err := outrigger.Send(ctx, w, []int64{2}, to, 7); err != nil {
				return err
			}
		}
		return nil
	}
	return eachSession(ctx, first, second)
}

// oneSessionLess: the process of rank 3 ends after its first session. The other ranks get an
// error in the second one.
func oneSessionLess(ctx context.Context) error {
	last := false
	first := func(w *outrigger.Comm) error {
		last = w.Rank() == w.Size()-1
		return w.Barrier(ctx)
	}
	if err := eachSession(ctx, first); err != nil || last {
		return err
	}
	return eachSession(ctx, func(w *outrigger.Comm) error {
		_, err := outrigger.Recv(ctx, w, make([]int64, 1), w.Size()-1, 7)
		if !errors.Is(err, outrigger.ErrPeerFailed) || !strings.Contains(err.Error(), "closed its session") {
			return fmt.Errorf("a message of a rank whose process has ended: %w", err)
		}
		return nil
	})
}
