package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// The test binary, as the ranks of a job, runs scenes in which ranks leave while messages are
// on their way.
const leavingCommand = "leaving"

var leavings = map[string]func(context.Context, *outrigger.Session) error{
	"late receiver":  lateReceiver,
	"early sender":   earlySender,
	"early receiver": earlyReceiver,
	"no receiver":    noReceiver,
	"gone before":    goneBefore,
}

func leaving(scene string) int {
	ctx := context.Background()
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err == nil {
		err = leavings[scene](ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playLeaving(t *testing.T, scene string, pods int) {
	t.Helper()
	code, out := start(t, 2, pods, os.Args[0], leavingCommand, scene).wait()
	if code != 0 || strings.Contains(out, "panic") {
		t.Errorf("%s in %d pods: exit code %d\n%s", scene, pods, code, out)
	}
}

// TestLeaving checks that no sent message is lost when ranks leave, and that ranks that wait
// for them get an error.
func TestLeaving(t *testing.T) {
	t.Parallel()
	for scene := range leavings {
		for _, pods := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s in %d pods", scene, pods), func(t *testing.T) {
				t.Parallel()
				playLeaving(t, scene, pods)
			})
		}
	}
}

const (
	lateMessages = 4400             // more than credit lets through: the rest waits with its sender
	lateBy       = 11 * time.Second // longer than anything but the receiver should end
)

// lateReceiver: every message whose Send has returned is received, although the receiver
// computes for long first.
func lateReceiver(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	buf := make([]uint64, 1)
	if w.Rank() == 1 {
		time.Sleep(lateBy)
	}
	for i := range uint64(lateMessages) {
		if w.Rank() == 0 {
			if err := outrigger.Send(ctx, w, []uint64{i}, 1, 7); err != nil {
				return err
			}
			continue
		}
		if _, err := outrigger.Recv(ctx, w, buf, 0, 7); err != nil {
			return err
		}
		if buf[0] != i {
			return fmt.Errorf("message %d has %d in it", i, buf[0])
		}
	}
	return s.Close()
}

// hurry closes a session at once, whatever it has open.
func hurry(s *outrigger.Session) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.CloseContext(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

const largeNumbers = 3 << 20 // of 8 bytes: a transfer of many turns

// earlySender: a sender leaves during a transfer. Its receiver gets an error, and the sidecar
// continues.
func earlySender(ctx context.Context, s *outrigger.Session) error {
	return cutShort(ctx, s, 0)
}

// earlyReceiver: a receiver leaves during a transfer, and its sender gets an error.
func earlyReceiver(ctx context.Context, s *outrigger.Session) error {
	return cutShort(ctx, s, 1)
}

// cutShort exchanges large messages; the rank deserter leaves when their transfer has begun.
func cutShort(ctx context.Context, s *outrigger.Session, deserter int) error {
	w := s.World()
	buf, err := outrigger.Alloc[uint64](s, largeNumbers)
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		var r outrigger.Request
		if w.Rank() == 0 {
			r, err = outrigger.Issend(w, buf, 1, 3)
		} else {
			r, err = outrigger.Irecv(w, buf, 0, 3)
		}
		if err != nil {
			return err
		}
		if w.Rank() == deserter && round >= 3 {
			if _, over, err := r.Test(); over || err != nil {
				continue // too fast to be left in the middle
			}
			return hurry(s)
		}
		if _, err = r.Wait(ctx); errors.Is(err, outrigger.ErrPeerFailed) && strings.Contains(err.Error(), "closed its session") {
			return s.Close()
		}
		if err != nil {
			return err
		}
	}
}

// goneBefore: a message to a rank that had left before there was a connection to its pod is an
// error of Send or Close, as with a connected pod.
func goneBefore(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	if w.Rank() == 1 {
		return s.Close()
	}
	time.Sleep(time.Second) // nothing tells that it has left
	err := outrigger.Send(ctx, w, make([]byte, 100), 1, 1)
	if err = errors.Join(err, s.Close()); !errors.Is(err, outrigger.ErrPeerFailed) || !strings.Contains(err.Error(), "send with rank 1 tag 1 (100 bytes)") {
		return fmt.Errorf("a message to a rank that has left: got %w", err)
	}
	return nil
}

// noReceiver: a receive, a probe and a send end when the rank that they are for
// has left in good order.
func noReceiver(ctx context.Context, s *outrigger.Session) error {
	w := s.World()
	if w.Rank() == 1 {
		return s.Close()
	}
	_, recv := outrigger.Recv(ctx, w, make([]uint64, 1), 1, 1)
	_, probe := w.Probe(ctx, 1, 1)
	send := outrigger.Ssend(ctx, w, []uint64{1}, 1, 1)
	for what, err := range map[string]error{"recv": recv, "probe": probe, "ssend": send} {
		if !errors.Is(err, outrigger.ErrPeerFailed) {
			return fmt.Errorf("%s with a rank that has left: got %w", what, err)
		}
	}
	return s.Close()
}
