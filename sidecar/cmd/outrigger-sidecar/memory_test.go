package main

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// TestEagerMemory: the formula's memory for eager messages is the memory that the engine may
// touch, however peers use their credit: the whole address space of the pool, and as many
// copies as the credit of all peers allows.
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
