package main

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// TestEagerMemory: the formula's memory for eager messages is the memory that the engine may
// touch, however peers use their credit (p2p TestPagesAreBoundedByCredit), and as many copies as
// that credit allows. Each size of ranges has address space for all of it.
func TestEagerMemory(t *testing.T) {
	for _, widest := range []int64{128 << 10, 1 << 20, 64 << 20, 1 << 30} {
		for _, pods := range []int{1, 2, 64, 4096} {
			c := core.Config{Pods: pods, CreditBytes: uint64(widest)}
			c.CreditFirst, c.CreditBudget = credit(widest, pods, 0)
			all := min(int64(pods)*widest, int64(pods)*memory.CreditLeast+memory.CreditBudget(widest))
			may := all + int64(pods)*(64<<10+2*4<<10) + memory.PoolWarm + min(5*all, memory.CopiesMax)
			if room := int64(c.PoolBytes()) - memory.CopiesMax; room < all*3+int64(pods)*(64<<10+2*4<<10) {
				t.Errorf("credit %d, %d pods: %d bytes of address space for %d of credit", widest, pods, room, all)
			}
			if has := (memory.Sizes{Credit: widest}).Eager(pods); has != may {
				t.Errorf("credit %d, %d pods: %d bytes in the formula, %d in the engine", widest, pods, has, may)
			}
		}
	}
}
