package e2e

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSwitchesPerMessage checks that the sidecars of a program of many small messages, with more
// processes than most machines of tests have processors, change contexts at most twice for each message
// that they handle.
func TestSwitchesPerMessage(t *testing.T) {
	code, out := startWith(t, []string{"--no-prefix", "--report"}, 4, 2, filepath.Join(bin, "npb"), "-class", "W", "lu").wait()
	_, table, said := strings.Cut(out, "switches per message\n")
	if code != 0 || !said {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	pods := 0
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) != 6 {
			break
		}
		pods++
		messages, each := number(t, fields[4]), fields[5]
		if n, err := strconv.ParseFloat(each, 64); err != nil || n > 2 || messages < 10_000 {
			t.Errorf("pod %s: %s context switches for each of %d messages, want at most 2", fields[0], each, messages)
		}
	}
	if pods != 2 {
		t.Errorf("lines of %d pods\n%s", pods, out)
	}
}
