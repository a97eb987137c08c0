package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestStrict checks that what `kubectl apply` refuses for its form is refused, and that the
// error names the field.
func TestStrict(t *testing.T) {
	job := readTable(t).Job
	for what, c := range map[string]struct{ text, want string }{
		"unknown field":          {strings.Replace(job, "ranks: 4", "ranks: 4\n  rank: 4", 1), `line 6: unknown field "spec.rank": is ranks meant?`},
		"unknown in the pod":     {strings.Replace(job, "command:", "commands:", 1), `unknown field "spec.template.spec.containers[0].commands"`},
		"other case":             {strings.Replace(job, "ranksPerPod", "ranksperpod", 1), `unknown field "spec.ranksperpod"`},
		"twice":                  {strings.Replace(job, "ranks: 4", "ranks: 4\n  ranks: 4", 1), `"ranks" already set`},
		"wrong type":             {strings.Replace(job, "ranks: 4", `ranks: "4"`, 1), `spec.ranks is the text "4", want a whole number, without quotes`},
		"no quantity":            {strings.Replace(job, "  template:", "  memory: {arena: lots}\n  template:", 1), `spec.memory.arena is "lots", want a number with k, M, G or T`},
		"other version":          {strings.Replace(job, "v1alpha1", "v1", 1), "apiVersion is outrigger.dev/v1, want outrigger.dev/v1alpha1"},
		"no name":                {strings.Replace(job, "name: good", "labels: {}", 1), `metadata.name is ""`},
		"name of no object":      {strings.Replace(job, "name: good", "name: Good", 1), `metadata.name is "Good"`},
		"two jobs":               {job + "---\n" + job, "MPIJobs good and good: one job at a time"},
		"no job":                 {"kind: Pod\napiVersion: v1\n", "no MPIJob (apiVersion outrigger.dev/v1alpha1) in it"},
		"nothing":                {"# a comment\n", "no MPIJob (apiVersion outrigger.dev/v1alpha1) in it"},
		"a list":                 {"- a\n", "document 1 is no object"},
		"no kind":                {job + "---\nmetadata: {}\n", "document 2 has no kind"},
		"no YAML":                {"a: b: c", "document that begins on line 1: mapping values are not allowed"},
		"profile not there":      {strings.Replace(job, "  template:", "  profileName: fast\n  template:", 1), "ProfileMissing: FabricProfile fast is not in the file"},
		"too long":               {job + strings.Repeat("#", SizeMax), "over 3145728 bytes"},
		"several things at once": {strings.NewReplacer("ranks: 4", "ranks: 0", "ranksPerPod: 2", "ranksPerPod: 0").Replace(job), "spec.ranksPerPod is 0, want 1 to 1024"},
	} {
		if _, err := Read([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n\twant: %s", what, err, c.want)
		}
	}
}

// TestFaultsAreLocated checks that a fault is reported with its line in the file, the
// field, the value found, and the value wanted.
func TestFaultsAreLocated(t *testing.T) {
	job := readTable(t).Job
	line := func(text, of string) int {
		before, _, found := strings.Cut(text, of)
		if !found {
			t.Fatalf("no %q in the job", of)
		}
		return 1 + strings.Count(before, "\n")
	}
	limits := func(memory string) string {
		return strings.Replace(job, "command:", "resources: {limits: {memory: "+memory+"}}\n        command:", 1)
	}
	for what, c := range map[string]struct{ text, at, want string }{
		"bytes":             {strings.Replace(job, "  template:", "  memory:\n    arena: 64MB\n  template:", 1), "arena", `spec.memory.arena is "64MB", want 64M (powers of 1000) or 64Mi (powers of 1024)`},
		"binary bytes":      {strings.Replace(job, "  template:", "  memory:\n    slab: 1 MiB\n  template:", 1), "slab", `spec.memory.slab is "1 MiB", want 1Mi`},
		"a small letter":    {limits("2gb"), "resources", `spec.template.spec.containers[0].resources.limits.memory is "2gb", want 2G (powers of 1000) or 2Gi`},
		"kilobytes":         {limits("64KB"), "resources", `want 64k (powers of 1000) or 64Ki`},
		"no amount":         {limits("much"), "resources", `is "much", want a number with k, M`},
		"a core":            {limits("64Mi, cpu: 1 core"), "resources", `limits.cpu is "1 core", want 1`},
		"no processors":     {limits("64Mi, cpu: 64MB"), "resources", `limits.cpu is "64MB", want a number of processors, such as 1 or 1.5, or`},
		"a list of memory":  {limits("[1]"), "resources", `limits.memory is "[1]", want a number`},
		"letters turned":    {strings.Replace(job, "ranksPerPod", "ranksPrePod", 1), "ranksPrePod", `unknown field "spec.ranksPrePod": is ranksPerPod meant?`},
		"nothing near":      {strings.Replace(job, "  template:", "  colour: red\n  template:", 1), "colour", `unknown field "spec.colour"`},
		"of a pod":          {strings.Replace(job, "command:", "comand:", 1), "comand", `is command meant?`},
		"text for a list":   {strings.Replace(job, "command: [", `command: "sh" #`, 1), "command", `spec.template.spec.containers[0].command is the text "sh", want a list: put a dash before each entry`},
		"number for text":   {strings.Replace(job, "command:", "env: [{name: A, value: 4}]\n        command:", 1), "env", `containers[0].env[0].value is 4, want a text: put it into quotes`},
		"list for a map":    {strings.Replace(job, "  template:", "  memory: [1]\n  template:", 1), "memory", `spec.memory is a list, want fields of its own`},
		"of an enumeration": {strings.Replace(job, "  template:", "  mpi: openmpi\n  template:", 1), "mpi:", `spec.mpi is "openmpi", want Auto, MPICH, Intel, OpenMPI, None`},
		"a fraction":        {strings.Replace(job, "ranks: 4", "ranks: 4.5", 1), "ranks: 4.5", "spec.ranks is 4.5, want a whole number"},
		"out of bounds":     {strings.Replace(job, "ranks: 4", "ranks: 0", 1), "ranks: 0", "spec.ranks is 0, want 1 to 524288"},
		"a rule":            {strings.Replace(job, "  template:", "  memory: {arena: 1}\n  template:", 1), "memory", "spec.memory.arena: arena is 64Ki to 16Ti"},
		"missing":           {strings.Replace(job, "ranks: 4", "", 1), "spec:", "spec.ranks is required"},
		"twice":             {strings.Replace(job, "ranks: 4", "ranks: 4\n  ranks: 5", 1), "ranks: 5", `key "ranks" already set`},
		"no YAML":           {strings.Replace(job, "ranks: 4", "ranks: [4", 1), "ranks: [4", "did not find"},
	} {
		for _, before := range []string{"", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: input}\n---\n# the job\n"} {
			text := before + c.text
			want := fmt.Sprintf("line %d: ", line(text, c.at))
			if what == "no YAML" { // the parser reports the line at which it stopped
				want = "line "
			}
			if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v\n\twant: %s%s", what, err, want, c.want)
			}
		}
	}
}

// TestMistakenFiles checks that the error of a file that is a mistake as a whole is
// bounded, and costs no more memory than some times its size, and that lines are those of
// the file, with any line ends.
func TestMistakenFiles(t *testing.T) {
	job := readTable(t).Job
	key := strings.Repeat("k", 900)
	deep := "kind: X\na: " + strings.Repeat("{"+key+": ", 3000) + "1" + strings.Repeat("}", 3000)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := Read([]byte(deep)); err == nil {
				b.Error("a file without a job was taken")
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 256<<20 {
		t.Errorf("a file of %d bytes took %d MiB, want at most 256", len(deep), allocated>>20)
	}
	args := strings.Replace(job, "command:", "args: ["+strings.Repeat("1,", 100_000)+"]\n        command:", 1)
	if _, err := Read([]byte(args)); err == nil || len(err.Error()) > 10_000 || !strings.Contains(err.Error(), "args[19] is 1") || !strings.HasSuffix(err.Error(), "and more") {
		t.Errorf("100,000 numbers for texts: %.10000v", err)
	}
	others := strings.Repeat("---\nkind: X\n", 1000)
	wrong := strings.Replace(job, "ranks: 4", "ranks: 0", 1)
	line := 2001 + strings.Count(wrong[:strings.Index(wrong, "ranks: 0")], "\n") + 1
	for _, text := range []string{others + "---\n" + wrong, strings.ReplaceAll(others+"---\n"+wrong, "\n", "\r\n")} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d: spec.ranks is 0", line)) {
			t.Errorf("%v, want line %d", err, line)
		}
	}
}

// TestJSON checks that a file may be JSON, too.
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

// FuzzRead checks that every accepted file can be planned, or has an error, and that its
// document is valid except for the values of the machine.
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
