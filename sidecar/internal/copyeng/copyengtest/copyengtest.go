// Package copyengtest makes copy engines for tests, and channels that fail.
package copyengtest

import (
	"errors"
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
)

// Least is the size from which the Copies of this package offload.
const Least = 64 << 10

// Copies returns Copies that offload to that many threads. The caller closes it.
func Copies(t testing.TB, threads int) *copyeng.Copies {
	t.Helper()
	return Over(t, func() (lanes []*copyeng.Lane) {
		for range threads {
			h := copyeng.NewHelper(-1)
			lanes = append(lanes, &copyeng.Lane{Channel: h, Alert: h.Alert})
		}
		return lanes
	})
}

// Over returns Copies that offload to the channels that open makes.
func Over(t testing.TB, open func() []*copyeng.Lane) *copyeng.Copies {
	t.Helper()
	c := copyeng.New(copyeng.Config{
		Kind: "test", Threshold: Least,
		Open: func(int) ([]*copyeng.Lane, error) { return open(), nil },
	})
	for !c.Takes(Least) {
		runtime.Gosched() // another goroutine opens them
	}
	return c
}

// ErrFailed is the error of a Failing channel.
var ErrFailed = errors.New("the channel fails")

// Failing is a channel that copies some pieces, and then fails all others, after it has
// written garbage, as a device may.
type Failing struct {
	copyeng.CPU
	Left   int // pieces until it fails
	failed []uint64
}

// Submit copies or fails.
func (f *Failing) Submit(dst, src []byte, token uint64) bool {
	if f.Left > 0 {
		f.Left--
		return f.CPU.Submit(dst, src, token)
	}
	for i := range src {
		dst[i] = ^src[i]
	}
	f.failed = append(f.failed, token)
	return true
}

// Poll reports the ends.
func (f *Failing) Poll(done func(token uint64, err error)) int {
	n := f.CPU.Poll(done)
	list := f.failed
	f.failed = nil
	for _, token := range list {
		done(token, ErrFailed)
	}
	return n + len(list)
}

// Pending returns the number of copies whose end is not reported.
func (f *Failing) Pending() int { return f.CPU.Pending() + len(f.failed) }
