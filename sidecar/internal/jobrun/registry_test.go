package jobrun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// home gives the test a registry of its own and returns its directory.
func home(t *testing.T) string {
	t.Helper()
	run := t.TempDir()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	return filepath.Join(run, "outrigger")
}

func enter(t *testing.T, name, id string) *registration {
	t.Helper()
	r, err := register(&Spec{Name: name, Ranks: 4, Pods: 2}, &layout{dir: "/jobs/" + name, doc: &bootstrap.Document{Job: bootstrap.Job{ID: id}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func listed(t *testing.T) []string {
	t.Helper()
	jobs, err := Jobs()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

func TestJobIsListedFromItsStartToItsEnd(t *testing.T) {
	home(t)
	if got := listed(t); got != nil {
		t.Fatalf("before any job: %v", got)
	}
	b := enter(t, "b", "0002")
	a := enter(t, "a", "0001")
	if diff := cmp.Diff([]string{"b", "a"}, listed(t)); diff != "" {
		t.Errorf("jobs in the order of their starts (-want +got):\n%s", diff)
	}
	jobs, err := Jobs()
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{
		Name: "b", ID: "0002", PID: os.Getpid(), Dir: "/jobs/b", Ranks: 4, Started: jobs[0].Started,
		Metrics: []string{"/jobs/b/pod0/metrics.sock", "/jobs/b/pod1/metrics.sock"}, Temporary: true,
	}
	if diff := cmp.Diff(want, jobs[0]); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if err := b.remove(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, listed(t)); diff != "" {
		t.Errorf("after the end of b (-want +got):\n%s", diff)
	}
	if err := a.remove(); err != nil {
		t.Fatal(err)
	}
}

// TestLeftOverEntryIsCleaned: a program that was killed loses its lock, and its entry
// stays.
func TestLeftOverEntryIsCleaned(t *testing.T) {
	dir := home(t)
	r := enter(t, "killed", "0001")
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	if got := listed(t); got != nil {
		t.Errorf("listed: %v", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left in the registry: %v", left)
	}
	if err := r.remove(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("removing twice: %v, want the closed file and nothing about the missing one", err)
	}
}

func TestEntryBeingWrittenIsLeftAlone(t *testing.T) {
	dir := home(t)
	if err := enter(t, "x", "0001").remove(); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, unfinished+"1")
	if err := os.WriteFile(half, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := listed(t); got != nil {
		t.Errorf("listed: %v", got)
	}
	if _, err := os.Stat(half); err != nil {
		t.Error(err)
	}
}

func TestRegistryOfOthersIsRefused(t *testing.T) {
	dir := home(t)
	for what, spoil := range map[string]func() error{
		"chmod 700":    func() error { return os.Chmod(dir, 0o777) }, //nolint:gosec // the point
		"no directory": func() error { return os.Remove(dir) },
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if what == "no directory" {
			if err := os.Symlink(t.TempDir(), dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Jobs(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("Jobs: %v, want an error with %q", err, what)
		}
		if _, err := register(&Spec{}, &layout{doc: &bootstrap.Document{}}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("register: %v, want an error with %q", err, what)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignRuntimeDirectoryIsPassedOver: a runtime directory of another user, as after
// su, is not used.
func TestForeignRuntimeDirectoryIsPassedOver(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for _, run := range []string{"", filepath.Join(tmp, "missing")} {
		t.Setenv("XDG_RUNTIME_DIR", run)
		dir, err := registryDir(true)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(dir) != tmp {
			t.Errorf("with XDG_RUNTIME_DIR=%q the registry is %s, want a folder in %s", run, dir, tmp)
		}
	}
}

func TestJobsAreNamedInSeveralWays(t *testing.T) {
	e := Entry{Name: "cg", ID: "0123456789abcdef", PID: 4711, Dir: "/jobs/cg"}
	for word, want := range map[string]bool{
		"cg": true, "4711": true, "/jobs/cg/": true, "0123": true, "0123456789abcdef": true,
		"c": false, "012": false, "471": false, "/jobs": false, "": false, "1234": false,
	} {
		if got := e.Is(word); got != want {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	}
}
