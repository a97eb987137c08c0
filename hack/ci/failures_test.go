// Package ci tests the output of CI's scripts.
package ci

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what hack/failures tells")

// TestFailures checks that hack/failures prints, for each log in testdata, the text below the log.
func TestFailures(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			log, want, _ := strings.Cut(string(text), "----\n")
			name := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(name, []byte(log), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "../failures", name)
			cmd.Env = append(os.Environ(), "WORDS=4", "MOST=12")
			got, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(log+"----\n"+string(got)), 0o644); err != nil { //nolint:gosec // as git has it
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
