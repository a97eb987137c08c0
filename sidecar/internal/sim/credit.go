package sim

import (
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// creditBytes is the widest window of credit, and in most jobs the only one.
const creditBytes = 128 << 10

// warmBytes is so small that memory goes back to the kernel in most jobs with small windows.
const warmBytes = 8 << 10

// drawCredit makes the windows of one job in four begin so small that a few messages use them up,
// with a budget that does not suffice for all peers. In some of these jobs a pod is of an earlier
// release, whose windows are fixed: its peers have memory for that. The windows of another job in
// four are full from the start, as in a job of few pods.
func drawCredit(c *core.Config) {
	c.CreditBytes = creditBytes
	switch c.Seed % 4 {
	case 1:
	case 3:
		c.CreditFirst = creditBytes
		return
	default:
		return
	}
	rng := rand.New(rand.NewPCG(c.Seed, 30))
	first, budget := uint64(1<<10)<<rng.IntN(4), uint64(2<<10)<<rng.IntN(4)
	if earlier := rng.IntN(4 * c.Pods); earlier < c.Pods {
		if earlier == int(c.Self) {
			return
		}
		budget += creditBytes - first
	}
	c.CreditFirst, c.CreditBudget = first, budget
}
