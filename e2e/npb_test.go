package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNPB verifies the kernels against the values that NPB publishes.
func TestNPB(t *testing.T) {
	for _, class := range []string{"S", "W"} {
		for _, kernel := range []string{"cg", "is", "ep", "mg"} {
			for _, ranks := range []int{1, 2, 4, 8} {
				for _, pods := range []int{1, 2, 4} {
					if pods > ranks {
						continue
					}
					if kernel == "ep" && class == "W" && (ranks != 4 || pods != 2) {
						continue // all of it is computing
					}
					t.Run(fmt.Sprintf("%s/%s/ranks=%d/pods=%d", class, kernel, ranks, pods), func(t *testing.T) {
						code, out := start(t, ranks, pods, filepath.Join(bin, "npb"), "-class", class, kernel).wait()
						if code != 0 || !strings.Contains(out, "VERIFICATION SUCCESSFUL") {
							t.Fatalf("exit code %d\n%s", code, out)
						}
					})
				}
			}
		}
	}
}
