package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestTour uses every part of the client library over one and several pods.
func TestTour(t *testing.T) {
	for _, c := range [][2]int{{2, 1}, {2, 2}, {5, 2}, {8, 4}} {
		t.Run(fmt.Sprintf("ranks=%d/pods=%d", c[0], c[1]), func(t *testing.T) {
			code, out := start(t, c[0], c[1], filepath.Join(bin, "tour")).wait()
			if code != 0 || !strings.Contains(out, "epochs right") {
				t.Fatalf("exit code %d\n%s", code, out)
			}
		})
	}
}
