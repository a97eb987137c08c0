package manifest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// document is for people who write MPIJobs. Its tables are held to the generated
// definitions and to the constants of the API.
const document = "../../../docs/mpijob.md"

func readDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReference: the tables of fields are those of the schemas; -update writes
// them.
func TestReference(t *testing.T) {
	text := readDocument(t)
	for section, plural := range map[string]string{"fields": "mpijobs", "profile": "fabricprofiles"} {
		begin := fmt.Sprintf("<!-- %s: begin, written by go test ./sidecar/internal/manifest -update -->\n", section)
		before, rest, found := strings.Cut(text, begin)
		have, after, ended := strings.Cut(rest, fmt.Sprintf("<!-- %s: end -->", section))
		if !found || !ended {
			t.Fatalf("%s has no place for the table of %s", document, section)
		}
		want := fieldTable(readSchema(t, plural))
		text = before + begin + want + "<!-- " + section + ": end -->" + after
		if diff := cmp.Diff(want, have); diff != "" && !*update {
			t.Errorf("%s, %s (-want +got):\n%s", document, section, diff)
		}
	}
	if *update {
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fieldTable is the table of a definition's spec, and what holds for it as a whole.
func fieldTable(s *schema) string {
	var rows, rules []string
	for _, v := range s.Validations {
		rules = append(rules, "- "+v.Message)
	}
	s.each("", func(path string, s *schema, required bool) {
		if path == "spec" {
			for _, v := range s.Validations {
				rules = append(rules, "- "+v.Message)
			}
			return
		}
		if len(s.Properties) > 0 && path != "spec.template" || s.Items != nil {
			return // its fields are in the table
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", strings.TrimPrefix(path, "spec."), s.preset(required), s.bounds(path), plain(bracketed.ReplaceAllString(s.Description, ""))))
	})
	slices.Sort(rows)
	return "| field | default | what it may be | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n\n" + strings.Join(rules, "\n") + "\n"
}

func plain(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

var saidDefault = regexp.MustCompile(`Default (\w+)\.`)

func (s *schema) preset(required bool) string {
	switch m := saidDefault.FindStringSubmatch(s.Description); {
	case required:
		return "required"
	case s.Default != nil:
		raw, _ := json.Marshal(s.Default) // it was JSON
		return "`" + strings.Trim(string(raw), `"`) + "`"
	case m != nil:
		return "`" + m[1] + "`"
	}
	return ""
}

// bounds says what a field may be; its own name is in the row already.
func (s *schema) bounds(path string) string {
	own := path[strings.LastIndexByte(path, '.')+1:] + " is "
	switch {
	case s.Enum != nil:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Minimum != nil:
		return span(number(s.Minimum), number(s.Maximum))
	}
	var list []string
	for _, v := range s.Validations {
		if !strings.Contains(v.Rule, "oldSelf") {
			list = append(list, strings.TrimPrefix(v.Message, own))
		}
	}
	if s.MaxLength != nil {
		list = append(list, span(number(s.MinLength), number(s.MaxLength))+" characters")
	}
	return strings.Join(list, "; ")
}

// TestReasonsAreExplained: every reason of a failure that the API has, and every
// condition, has its row, and no row is about one that is gone.
func TestReasonsAreExplained(t *testing.T) {
	text := readDocument(t)
	section := func(title string) map[string]bool {
		_, rest, found := strings.Cut(text, "\n## "+title+"\n")
		if !found {
			t.Fatalf("%s has no section %s", document, title)
		}
		part, _, _ := strings.Cut(rest, "\n## ")
		rows := map[string]bool{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\|").FindAllStringSubmatch(part, -1) {
			rows[m[1]] = true
		}
		return rows
	}
	want := constants(t, "../../../api/podlife/reason.go", func(name, kind string) bool { return kind == "Reason" })
	for name := range constants(t, "../../../api/v1alpha1/status.go", func(name, _ string) bool { return strings.HasPrefix(name, "Reason") }) {
		want[name] = true
	}
	if diff := cmp.Diff(want, section("Failures")); diff != "" {
		t.Errorf("reasons (-of the API +of the document):\n%s", diff)
	}
	conditions := constants(t, "../../../api/v1alpha1/status.go", func(name, _ string) bool { return strings.HasPrefix(name, "Condition") })
	if diff := cmp.Diff(conditions, section("Status")); diff != "" {
		t.Errorf("conditions (-of the API +of the document):\n%s", diff)
	}
}

// constants are the values of the string constants of a file that are wanted.
func constants(t *testing.T, file string, wanted func(name, kind string) bool) map[string]bool {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		kind, _ := v.Type.(*ast.Ident)
		for i, name := range v.Names {
			literal, ok := v.Values[i].(*ast.BasicLit)
			if !ok || !wanted(name.Name, fmt.Sprint(kind)) {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[value] = true
		}
		return true
	})
	if len(found) < 5 {
		t.Fatalf("%s has only the constants %v", file, found)
	}
	return found
}

// bracketed is what hack/crd adds to a description; the table has columns for it.
var bracketed = regexp.MustCompile(` \[[^\]]*\]$`)

// TestMemoryExample: the figure of the document is what the operator computes.
func TestMemoryExample(t *testing.T) {
	m := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{}, &v1alpha1.FabricProfileSpec{}, 4)
	m.Arena = 1 << 30
	want := fmt.Sprintf("<!-- memory -->%d<!-- --> MiB", m.Need(16, 64, 4)>>20)
	if !strings.Contains(readDocument(t), want) {
		t.Errorf("the document does not have %s", want)
	}
	mpi := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{MPI: v1alpha1.MPIAuto}, &v1alpha1.FabricProfileSpec{}, 4)
	if want := fmt.Sprintf("<!-- mpi -->%d<!-- --> MiB", mpi.Need(16, 64, 4)>>20); !strings.Contains(readDocument(t), want) {
		t.Errorf("the document does not have %s", want)
	}
	large := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{}, &v1alpha1.FabricProfileSpec{}, 4096)
	if want := fmt.Sprintf("<!-- large -->%.0f<!-- --> GiB", float64(large.Own(128, 128*4096, 4096))/(1<<30)); !strings.Contains(readDocument(t), want) {
		t.Errorf("the document does not have %s", want)
	}
}

// TestDocumentsExamples: every manifest in docs/examples is one that runs, and the
// document leads to it.
func TestDocumentsExamples(t *testing.T) {
	files, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	text := readDocument(t)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Read(raw)
		if err == nil {
			_, err = f.Plan(&Machine{})
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(text, "(examples/"+filepath.Base(file)+")") {
			t.Errorf("the document does not name %s", file)
		}
	}
}
