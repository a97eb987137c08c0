package arch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHouse checks this module.
func TestHouse(t *testing.T) {
	tree, err := Load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) {
			for _, wrong := range law.Check(tree) {
				t.Error(wrong)
			}
		})
	}
}

// TestLaws checks the checker. Each file of testdata is a small module that
// breaks one law, among code that the law allows; its section "want" has every
// violation that all laws together must find, and no other.
func TestLaws(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			root, want := unpack(t, name)
			tree, err := Load(root)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, law := range Laws() {
				for _, wrong := range law.Check(tree) {
					got += law.Name + ": " + wrong + "\n"
					broken[law.Name] = true
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
	for _, law := range Laws() {
		if !broken[law.Name] {
			t.Errorf("no file of testdata breaks the law %q, so nothing shows that it can fail", law.Name)
		}
	}
}

func TestRoomsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"a  pure":                        "not of the form",
		"a  pure  #":                     "not of the form",
		"a  b  pure  # two folders":      "not of the form",
		"a  pure  b  # no arrow":         "not of the form",
		"a  attic  # a kind of our own":  `unknown kind "attic"`,
		"a  pure  # one\na  edge  # one": "listed twice",
	} {
		name := filepath.Join(t.TempDir(), "rooms.txt")
		if err := os.WriteFile(name, []byte("# a comment\n\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readRooms(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// unpack writes the files of an archive, "-- name --" and then the content, to
// a folder and returns the folder and the content of "want". What stands before
// the first file is a comment. A file "name padded to N" gets empty lines until
// it has N.
func unpack(t *testing.T, name string) (root, want string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	for _, section := range strings.Split("\n"+string(text), "\n-- ")[1:] {
		file, content, _ := strings.Cut(section, " --\n")
		content = strings.TrimRight(content, "\n") + "\n"
		if file == "want" {
			want = content
			continue
		}
		file, pad, _ := strings.Cut(file, " padded to ")
		if n, err := strconv.Atoi(pad); err == nil {
			content += strings.Repeat("\n", n-strings.Count(content, "\n"))
		}
		path := filepath.Join(root, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, want
}
