package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// claims are sentences of these documents that a change could make untrue without
// a test noticing. A hidden comment behind each sentence names its subject and the test that fails
// if the sentence is wrong:
//
//	<!-- claim of SUBJECT: FOLDER TestName -->
var (
	claim  = regexp.MustCompile(`<!-- claim of ([a-zA-Z]+): (\S+) (Test\w+) -->`)
	marked = "<!-- claim"
)

// claimed maps each document to the subjects of its claims.
var claimed = map[string][]string{
	"mpijob.md":           {"memory", "runPolicy", "certificates", "deadlines", "logs", "conditions", "releases"},
	"mpijob-reference.md": {"memory", "runPolicy", "certificates", "deadlines", "logs", "conditions", "releases", "ranks"},
	"install.md":          {"tokens", "certificates", "releases"},
	"devices.md":          {"devices", "ether", "logs", "memory"},
	"security.md":         {"ether", "users"},
}

// TestClaims checks that each claim of the documents names a test that exists, and that each
// subject has a claim.
func TestClaims(t *testing.T) {
	for name, subjects := range claimed {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range unproved(string(text), subjects, hasTest) {
			t.Errorf("docs/%s: %s", name, wrong)
		}
	}
}

// unproved returns the claims of a text without a test, and the subjects without a claim.
func unproved(text string, subjects []string, hasTest func(folder, name string) bool) (wrong []string) {
	found := claim.FindAllStringSubmatch(text, -1)
	if n := strings.Count(text, marked); n != len(found) {
		wrong = append(wrong, fmt.Sprintf("%d of %d claims are not of the form %s", n-len(found), n, claim))
	}
	about := map[string]bool{}
	for _, c := range found {
		about[c[1]] = true
		if !hasTest(c[2], c[3]) {
			wrong = append(wrong, fmt.Sprintf("a claim of %s is shown by %s in %s, which is not there: name the test that shows it now, or mend the words", c[1], c[3], c[2]))
		}
	}
	for _, s := range subjects {
		if !about[s] {
			wrong = append(wrong, "no claim of "+s+" names its test")
		}
	}
	return wrong
}

func hasTest(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go")) // the pattern is well formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// TestUnproved checks that each kind of wrong claim is reported.
func TestUnproved(t *testing.T) {
	there := func(folder, name string) bool { return folder == "a" && name == "TestA" }
	for text, want := range map[string]string{
		"It is so.<!-- claim of ranks: a TestA -->":    "",
		"It is so.<!-- claim of ranks: a TestGone -->": "TestGone in a, which is not there",
		"It is so.<!-- claim of ranks: TestA -->":      "1 of 1 claims are not of the form",
		"It is so.": "no claim of ranks",
	} {
		if got := strings.Join(unproved(text, []string{"ranks"}, there), "; "); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
