package manifest

import (
	"errors"
	"strings"
	"testing"
)

// TestStrict: what `kubectl apply` refuses for its form is refused, and the field
// is named.
func TestStrict(t *testing.T) {
	job := readTable(t).Job
	for what, c := range map[string]struct{ text, want string }{
		"unknown field":          {strings.Replace(job, "ranks: 4", "ranks: 4\n  rank: 4", 1), `unknown field "spec.rank"`},
		"unknown in the pod":     {strings.Replace(job, "command:", "commands:", 1), `unknown field "spec.template.spec.containers[0].commands"`},
		"other case":             {strings.Replace(job, "ranksPerPod", "ranksperpod", 1), `unknown field "spec.ranksperpod"`},
		"twice":                  {strings.Replace(job, "ranks: 4", "ranks: 4\n  ranks: 4", 1), `"ranks" already set`},
		"wrong type":             {strings.Replace(job, "ranks: 4", `ranks: "4"`, 1), "spec.ranks of type int32"},
		"no quantity":            {strings.Replace(job, "  template:", "  memory: {arena: lots}\n  template:", 1), "quantities must match"},
		"other version":          {strings.Replace(job, "v1alpha1", "v1", 1), "apiVersion is outrigger.dev/v1, want outrigger.dev/v1alpha1"},
		"no name":                {strings.Replace(job, "name: good", "labels: {}", 1), `metadata.name is ""`},
		"name of no object":      {strings.Replace(job, "name: good", "name: Good", 1), `metadata.name is "Good"`},
		"two jobs":               {job + "---\n" + job, "MPIJobs good and good: one job at a time"},
		"no job":                 {"kind: Pod\napiVersion: v1\n", "no MPIJob (apiVersion outrigger.dev/v1alpha1) in it"},
		"nothing":                {"# a comment\n", "no MPIJob (apiVersion outrigger.dev/v1alpha1) in it"},
		"a list":                 {"- a\n", "document 1 is no object"},
		"no kind":                {job + "---\nmetadata: {}\n", "document 2 has no kind"},
		"no YAML":                {"a: b: c", "document 1: "},
		"profile not there":      {strings.Replace(job, "  template:", "  profileName: fast\n  template:", 1), "ProfileMissing: FabricProfile fast is not in the file"},
		"too long":               {job + strings.Repeat("#", SizeMax), "over 3145728 bytes"},
		"several things at once": {strings.NewReplacer("ranks: 4", "ranks: 0", "ranksPerPod: 2", "ranksPerPod: 0").Replace(job), "spec.ranksPerPod is 0, want 1 to 1024"},
	} {
		if _, err := Read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n\twant: %s", what, err, c.want)
		}
	}
}

// TestJSON: a file may be JSON, too.
func TestJSON(t *testing.T) {
	f, err := Read([]byte(`{"apiVersion":"outrigger.dev/v1alpha1","kind":"MPIJob","metadata":{"name":"j","namespace":"n"},
		"spec":{"ranks":3,"transport":{"type":"TCP"},"template":{"spec":{"containers":[{"name":"a","image":"b","command":["c"]}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Job.Spec; f.Job.Namespace != "n" || s.Ranks != 3 || s.RanksPerPod != 1 || s.Transport.Policy != "Preferred" || s.LaunchMode != "Processes" {
		t.Errorf("%+v", f.Job)
	}
}

func TestNotToRun(t *testing.T) {
	job := readTable(t).Job
	f, err := Read([]byte(strings.Replace(job, "  template:", "  runPolicy: {suspend: true}\n  template:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(&Machine{}); !errors.Is(err, ErrSuspended) {
		t.Errorf("suspended: %v", err)
	}
	f.Job.Spec.PodManagement = "External"
	if _, err := f.Plan(&Machine{}); err != nil {
		t.Errorf("suspend does nothing to pods of others: %v", err)
	}
	text := strings.NewReplacer("ranksPerPod: 2", "launchMode: Container", `command: [/solver, -n, "100"]`, "args: [x]").Replace(job)
	if f, err = Read([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(&Machine{}); err == nil || !strings.Contains(err.Error(), "the entry point of its image example/solver cannot be known here") {
		t.Errorf("no command: %v", err)
	}
	if _, err := f.Plan(&Machine{Program: []string{"/bin/true"}}); err != nil {
		t.Errorf("with a program of the caller's: %v", err)
	}
}

// FuzzRead: whatever is accepted can be planned, or says why not, and its document
// is a good one but for what belongs to the machine.
func FuzzRead(f *testing.F) {
	all := readTable(f)
	f.Add([]byte(all.Job))
	f.Add([]byte(all.withProfile(all.Profile)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := Read(raw)
		if err != nil {
			return
		}
		p, err := file.Plan(&Machine{Node: "n"})
		if err != nil {
			return
		}
		if err := p.Attempt(0).Document("id").Validate(); err != nil {
			t.Fatalf("%v of\n%s", err, raw)
		}
		if program, _ := p.Program(0, p.Pods-1); len(program) == 0 {
			t.Fatalf("no program of\n%s", raw)
		}
	})
}
