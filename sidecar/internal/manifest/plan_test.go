package manifest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the answers in testdata again")

// TestPlans compares the plan of each manifest of testdata with the text file of the same
// name.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no manifests", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := story(t, text)
		answer := strings.TrimSuffix(file, ".yaml") + ".txt"
		if *update {
			if err := os.WriteFile(answer, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(answer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// story describes a plan completely.
func story(t *testing.T, text []byte) string {
	t.Helper()
	f, err := Read(text)
	if err != nil {
		return err.Error() + "\n"
	}
	p, err := f.Plan(&Machine{Node: "laptop"})
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&out, format+"\n", a...) }
	for i := range p.Ignored {
		say("ignored, %s", &p.Ignored[i])
	}
	say("%d pods, deadline %v, %d restarts, in %q", p.Pods, p.Deadline, p.RestartLimit, p.WorkDir)
	for attempt := range p.RestartLimit + 1 {
		program, env := p.Program(attempt, p.Pods-1)
		say("attempt %d, last pod runs %q", attempt, program)
		for _, v := range env {
			say("  %s", v)
		}
	}
	raw, err := json.MarshalIndent(p.Attempt(0).Document("an id"), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	say("%s", raw)
	return out.String()
}

// TestOtherProgram checks that the caller's program replaces the container's command, and
// that this is reported.
func TestOtherProgram(t *testing.T) {
	f, err := Read([]byte(readTable(t).Job))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(&Machine{Program: []string{"./solver", "$(OUTRIGGER_POD)"}})
	if err != nil {
		t.Fatal(err)
	}
	program, env := p.Program(0, 1)
	if diff := cmp.Diff([]string{"./solver", "$(OUTRIGGER_POD)"}, program); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"OUTRIGGER_POD=1", "JOB_COMPLETION_INDEX=1"}, env); diff != "" {
		t.Error(diff)
	}
	program[0] = "changed"
	if again, _ := p.Program(0, 0); again[0] != "./solver" {
		t.Error("a plan can be changed from outside")
	}
	if len(p.Ignored) != 1 || p.Ignored[0].String() != "no containers here: the program is this machine's: container.command, container.image" {
		t.Errorf("ignored: %v", p.Ignored)
	}
}

// TestDeadlockTime checks that the value of the file is kept, and that the schema's
// default, which is for a cluster, is not used.
func TestDeadlockTime(t *testing.T) {
	for line, want := range map[string]time.Duration{"": -1, "runPolicy: {restartLimit: 1}": -1, "runPolicy: {deadlockAfterSeconds: 300}": 5 * time.Minute, "runPolicy: {deadlockAfterSeconds: 0}": 0} {
		f, err := Read([]byte("apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: cg}\nspec:\n  ranks: 1\n  " + line + "\n  template: {spec: {containers: [{name: cg, image: cg, command: [cg]}]}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Plan(&Machine{Node: "laptop"})
		if err != nil {
			t.Fatal(err)
		}
		if p.Deadlock != want {
			t.Errorf("%q: %v, want %v", line, p.Deadlock, want)
		}
	}
}
