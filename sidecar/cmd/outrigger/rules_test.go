package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRuleWithoutFailureIsWarnedOf: for a restart rule with a reason that no failure has,
// run prints the warning that the status of the job has on a cluster. There is no warning
// for a rule with a failure's reason.
func TestRuleWithoutFailureIsWarnedOf(t *testing.T) {
	for reason, meant := range map[string]string{"OOMKilled": "is OutOfMemory meant?", "rankExited": "is RankExited meant?", "Tired": "which no failure has", "RankExited": ""} {
		job := filepath.Join(t.TempDir(), "job.yaml")
		text := "apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: cg}\nspec:\n  ranks: 1\n  runPolicy: {restartRules: [{action: Fail, reasons: [" + reason +
			"]}]}\n  template: {spec: {containers: [{name: cg, image: cg, command: [/bin/true]}]}}\n"
		if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := program(t, "run", "-f", job, "--dry-run", "--quiet-ignored").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		p := v1alpha1.RunPolicy{RestartRules: []v1alpha1.RestartRule{{Reasons: []string{reason}}}}
		if same := p.Unruly(); meant == "" && strings.Contains(string(out), "restartRules") || !strings.Contains(same, meant) || !strings.Contains(string(out), same) {
			t.Errorf("%s: %q is not in %s", reason, same, out)
		}
	}
}
