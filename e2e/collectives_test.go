package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCollectivesAgainstModel compares every collective with the result that a rank computes
// by itself: odd and uneven counts, private and arena memory, commutative and other operations
// of the program, several collectives at the same time.
func TestCollectivesAgainstModel(t *testing.T) {
	for _, c := range []struct{ ranks, pods, rounds, most int }{
		{1, 1, 300, 5000},
		{2, 1, 300, 100_000},
		{2, 2, 300, 100_000},
		{3, 1, 200, 100_000},
		{3, 2, 200, 70_000},
		{4, 2, 200, 70_000},
		{5, 2, 200, 30_000},
		{6, 1, 200, 30_000},
		{5, 5, 100, 30_000},  // two trees
		{6, 2, 300, 200_001}, // shares of an allreduce
		{6, 3, 500, 200_000}, // both
		{7, 3, 200, 10_000},
		{8, 2, 200, 10_000},
		{16, 2, 100, 300},
		{32, 1, 80, 300},
		{64, 4, 40, 300},
	} {
		t.Run(fmt.Sprintf("ranks=%d/pods=%d", c.ranks, c.pods), func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			code, out := start(t, c.ranks, c.pods, self, collectivesCommand, fmt.Sprint(c.rounds), fmt.Sprint(c.most)).wait()
			if code != 0 || !strings.Contains(out, collectivesRight) {
				t.Fatalf("exit code %d\n%s", code, out)
			}
		})
	}
}
