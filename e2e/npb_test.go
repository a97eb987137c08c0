package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNPB compares the results of the kernels with the values that NPB publishes.
func TestNPB(t *testing.T) {
	for _, ranks := range []int{1, 2, 4, 8} {
		for _, pods := range []int{1, 2, 4} {
			if pods > ranks {
				continue
			}
			for _, kernel := range []string{"cg", "is", "mg"} {
				npb(t, "S", kernel, ranks, pods)
				npb(t, "W", kernel, ranks, pods)
			}
			for _, kernel := range []string{"ep", "ft", "lu"} {
				npb(t, "S", kernel, ranks, pods)
			}
		}
	}
	for _, kernel := range []string{"ep", "ft", "lu"} { // seconds of computing: one division is enough
		npb(t, "W", kernel, 4, 2)
	}
	npb(t, "S", "lu", 6, 3) // no power of two
}

func npb(t *testing.T, class, kernel string, ranks, pods int) {
	t.Run(fmt.Sprintf("%s/%s/ranks=%d/pods=%d", class, kernel, ranks, pods), func(t *testing.T) {
		code, out := start(t, ranks, pods, filepath.Join(bin, "npb"), "-class", class, kernel).wait()
		if code != 0 || !strings.Contains(out, "VERIFICATION SUCCESSFUL") {
			t.Fatalf("exit code %d\n%s", code, out)
		}
	})
}
