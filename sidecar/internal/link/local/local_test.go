package local_test

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
)

func TestLink(t *testing.T) {
	linktest.Run(t, func(t *testing.T) *linktest.Pair {
		m := linktest.NewMemory()
		l := local.New(3, m)
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		end := linktest.Side{Link: l, Memory: m, Peer: 3}
		return &linktest.Pair{A: end, B: end, Pass: func() {}}
	})
}
