package local_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

func TestLink(t *testing.T) { linktest.Run(t, pair(func(*testing.T) *copyeng.Copies { return nil })) }

// TestOffloads runs the suite over a link whose large operations are copied by threads.
func TestOffloads(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			linktest.Run(t, pair(func(t *testing.T) *copyeng.Copies { return copyengtest.Copies(t, threads) }))
		})
	}
}

func pair(copies func(*testing.T) *copyeng.Copies) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		m := linktest.NewMemory()
		l := local.New(3, m)
		c := copies(t)
		l.SetCopies(c)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), l.Close()); err != nil {
				t.Error(err)
			}
		})
		end := linktest.Side{Link: l, Memory: m, Peer: 3}
		return &linktest.Pair{A: end, B: end, Pass: func() {}}
	}
}
