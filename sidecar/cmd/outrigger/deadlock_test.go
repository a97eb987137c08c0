package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestDeadlockAfterByDefault: by default a deadlock is suspected after 10 s, for a program
// and for a manifest. A given time is used, including 0 and a cluster's 300 s.
func TestDeadlockAfterByDefault(t *testing.T) {
	const ten = 10 * time.Second
	for line, want := range map[string]time.Duration{
		"": ten, "--deadlock-after=0": 0, "--deadlock-after=7s": 7 * time.Second,
	} {
		var o runOptions
		o.cmd = new(cobra.Command)
		o.flags(o.cmd)
		var args []string
		if line != "" {
			args = []string{line}
		}
		if err := o.cmd.ParseFlags(args); err != nil || o.spec.Deadlock.After != want {
			t.Errorf("run %s: %v, %v; want %v", line, o.spec.Deadlock.After, err, want)
		}
	}
	for line, want := range map[string]time.Duration{
		"": ten, "runPolicy: {}": ten, "runPolicy: {deadlockAction: Fail}": ten,
		"runPolicy: {deadlockAfterSeconds: 0}": 0, "runPolicy: {deadlockAfterSeconds: 7}": 7 * time.Second, "runPolicy: {deadlockAfterSeconds: 300}": 5 * time.Minute,
	} {
		var o runOptions
		o.cmd = new(cobra.Command)
		o.flags(o.cmd)
		o.file = filepath.Join(t.TempDir(), "job.yaml")
		text := "apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: cg}\nspec:\n  ranks: 1\n  " + line + "\n  template: {spec: {containers: [{name: cg, image: cg, command: [/bin/true]}]}}\n"
		if err := os.WriteFile(o.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, err := o.plan(nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&manifestRun{o: &o, plan: plan, reported: map[string]bool{}}).spec(0)
		if err != nil {
			t.Fatal(err)
		}
		if s.Deadlock.After != want {
			t.Errorf("run -f with %q: %v, want %v", line, s.Deadlock.After, want)
		}
	}
}
