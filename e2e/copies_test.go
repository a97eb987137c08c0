package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopyingThreads checks that large messages arrive whole where threads may copy them, and
// that the report says what has copied. Whether a thread is used depends on what this machine
// measures.
func TestCopyingThreads(t *testing.T) {
	ring := []string{filepath.Join(bin, "ring"), "-bytes", "1048576", "-rounds", "40"}
	for pods := 1; pods <= 2; pods++ {
		for _, threads := range []int{-1, 1, 2} {
			t.Run(fmt.Sprintf("%d threads, %d pods", threads, pods), func(t *testing.T) {
				code, text := startWith(t, []string{"--helpers", fmt.Sprint(threads)}, 4, pods, ring...).wait()
				want := pods
				if threads < 0 {
					want = 0
				}
				if n := strings.Count(text, " of messages copied by helper, "); code != 0 || n != want {
					t.Errorf("exit code %d, %d lines about copies, want 0 and %d:\n%s", code, n, want, text)
				}
			})
		}
	}
}
