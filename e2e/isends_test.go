package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// isendsCommand runs the test binary as one of two ranks with thousands of open sends.
const isendsCommand = "outrigger-isends"

// TestThousandsOfIsends checks thousands of open sends of private memory, of which the
// receiver may receive the last one first.
func TestThousandsOfIsends(t *testing.T) {
	for pods := 1; pods <= 2; pods++ {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			code, out := start(t, 2, pods, self, isendsCommand).wait()
			if code != 0 || !strings.Contains(out, "all received") {
				t.Fatalf("exit code %d\n%s", code, out)
			}
		})
	}
}

func isends() int {
	if err := exchangeMany(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func exchangeMany(ctx context.Context) error {
	const messages, n = 4000, 12_500 // of 100 kB
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	c := s.World()
	other := 1 - c.Rank()
	var sends []outrigger.Request
	var bufs [16][]uint64
	for i := range bufs {
		bufs[i] = make([]uint64, n)
		for j := range bufs[i] {
			bufs[i][j] = uint64(i<<32 + j)
		}
	}
	for tag := range messages {
		r, err := outrigger.Isend(c, bufs[tag%16], other, tag)
		if err != nil {
			return fmt.Errorf("send %d: %w", tag, err)
		}
		sends = append(sends, r)
	}
	if err := c.Barrier(ctx); err != nil { // the sends leave room for it
		return err
	}
	in := make([]uint64, n)
	for tag := messages - 1; tag >= 0; tag-- {
		if _, err := outrigger.Recv(ctx, c, in, other, tag); err != nil {
			return fmt.Errorf("receive %d: %w", tag, err)
		}
		for j, x := range in {
			if x != uint64(tag%16<<32+j) {
				return fmt.Errorf("message %d: element %d is %#x", tag, j, x)
			}
		}
	}
	for tag, r := range sends {
		if _, err := r.Wait(ctx); err != nil {
			return fmt.Errorf("send %d: %w", tag, err)
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, "all received")
	return s.Close()
}
