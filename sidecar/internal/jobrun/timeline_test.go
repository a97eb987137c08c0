package jobrun

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCheckTrace(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, good := range map[string]bool{
		"": true, old: true, filepath.Join(dir, "new.json"): true, os.DevNull: true,
		dir: false, filepath.Join(dir, "none", "new.json"): false,
	} {
		if err := (&Spec{Trace: path}).checkTrace(); (err == nil) != good {
			t.Errorf("%q: error %v, want none: %v", path, err, good)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "{}" { //nolint:gosec // the test's own
		t.Errorf("the file that was there holds %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.json")); err == nil {
		t.Error("an empty file is left")
	}
}
