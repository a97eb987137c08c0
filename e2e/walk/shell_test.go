//go:build cluster

package walk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// The cluster, and the root of the tree with the documents.
var (
	lab  *harness.Cluster
	root string
)

func TestMain(m *testing.M) {
	var err error
	if root, err = filepath.Abs("../.."); err == nil {
		lab, err = harness.Open(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// shell is the terminal of a user: a folder, a kubeconfig with a namespace of its own, and the
// programs of the documents.
type shell struct {
	t         *testing.T
	dir, bin  string
	config    string
	namespace string
}

func openShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir(), bin: t.TempDir(), namespace: lab.Namespace(t, harness.Restricted)}
	text, err := os.ReadFile(lab.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s.config = filepath.Join(s.bin, "kubeconfig")
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.in(root, "CGO_ENABLED=0 go build -o "+s.bin+"/ ./sidecar/cmd/...")
	s.in(root, "kubectl config set-context --current --namespace="+s.namespace)
	return s
}

// command returns a command of a shell in a folder.
func (s *shell) command(dir, commands string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "/bin/bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.config, "HOME="+s.bin, "GOPATH="+goEnv(s.t, "GOPATH"), "GOCACHE="+goEnv(s.t, "GOCACHE"),
		"PATH="+strings.Join([]string{filepath.Join(root, "bin/tools"), lab.Programs(), os.Getenv("PATH")}, ":"))
	return cmd
}

// in runs commands in a folder and returns what they printed.
func (s *shell) in(dir, commands string) string {
	s.t.Helper()
	out, err := s.command(dir, commands).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	return string(out)
}

// walk runs a block of a document, with the path of this tree instead of the document's.
func (s *shell) walk(dir, block string) string {
	s.t.Helper()
	block = strings.ReplaceAll(block, "/path/to/outrigger/bin/", s.bin+"/")
	return s.in(dir, strings.ReplaceAll(block, "/path/to/outrigger", root))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

var fence = regexp.MustCompile("(?sm)^```\\w*\n(.*?)^```$")

// blocks returns the blocks of a section of a document.
func blocks(t *testing.T, document, heading string, want int) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docs", document))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var list []string
	for _, m := range fence.FindAllStringSubmatch(section, -1) {
		list = append(list, m[1])
	}
	if !found || len(list) < want {
		t.Fatalf("%s, %s: %d blocks, want %d", document, heading, len(list), want)
	}
	return list
}

// eventually waits until a shell's command prints what is wanted.
func (s *shell) eventually(commands, want string) string {
	s.t.Helper()
	said := ""
	err := harness.Poll(s.t.Context(), func() error {
		out, err := s.command(root, commands).CombinedOutput()
		if said = string(out); err == nil && !strings.Contains(said, want) {
			err = fmt.Errorf("it says %s", said)
		}
		return err
	})
	if err != nil {
		s.t.Fatalf("%s: no %q: %v", commands, want, err)
	}
	return said
}
