package main

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// TestEagerMemory: what the formula sets aside for eager messages is what the
// engine may touch, however peers use their credit: all of the pool's address
// space, and of the copies' what the credit of all peers lets exist.
func TestEagerMemory(t *testing.T) {
	for _, credit := range []int64{128 << 10, 1 << 20, 64 << 20, 1 << 30} {
		for _, pods := range []int{1, 2, 64, 4096} {
			c := core.Config{Pods: pods, CreditBytes: uint64(credit)}
			const copies = 256 << 20
			may := int64(c.PoolBytes()) - copies + min(int64(pods)*credit, copies)
			if has := (memory.Sizes{Credit: credit}).Eager(pods); has != may {
				t.Errorf("credit %d, %d pods: %d bytes in the formula, %d in the engine", credit, pods, has, may)
			}
		}
	}
}
