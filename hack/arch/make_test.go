package arch

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// makes runs make at the root of the tree, without the flags of the make that runs this test.
func makes(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-C", "../.."}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestMakeListsItsTargets checks that make lists each target that has a description, also if its
// name has unusual characters.
func TestMakeListsItsTargets(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed := makes(t)
	described := regexp.MustCompile(`(?m)^([^\s:#]+):.*?## (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(described) < 10 {
		t.Errorf("%d targets with a description", len(described))
	}
	for _, d := range described {
		if !regexp.MustCompile(`(?m)^  make ` + regexp.QuoteMeta(d[1]) + ` +` + regexp.QuoteMeta(d[2]) + `$`).MatchString(listed) {
			t.Errorf("make does not list %s", d[1])
		}
	}
}

// TestDemoBuildsWhatItRuns checks that make demo builds the programs that it runs, and nothing
// else: it is the first command of a new user.
func TestDemoBuildsWhatItRuns(t *testing.T) {
	const want = "go build -o bin/ ./sidecar/cmd/outrigger ./sidecar/cmd/outrigger-sidecar ./sidecar/cmd/outrigger-launch ./clientlib/examples/npb\n"
	if out := makes(t, "-n", "demo"); !strings.Contains(out, want) || strings.Count(out, "go build") != 1 {
		t.Errorf("make demo would run\n%s", out)
	}
}
