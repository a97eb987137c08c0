package image

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// build compiles a program of a few lines.
func build(t *testing.T, env ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { println(\"here\") }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, filepath.Join(dir, "main.go"))
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestImage checks that an image of a program runs that program. api/image tests the
// contents of the archive.
func TestImage(t *testing.T) {
	program := build(t, "CGO_ENABLED=0", "GOARCH=arm64")
	arch, err := Static(program)
	if err != nil || arch != "arm64" {
		t.Fatal(arch, err)
	}
	i := &Image{Reference: "docker.io/library/solver:v1", Name: "solver", Program: program, Arch: arch}
	out := filepath.Join(t.TempDir(), "solver.tar")
	named, err := i.Save(out)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(i.Reference)
	if err != nil {
		t.Fatal(err)
	}
	made, err := tarball.ImageFromPath(out, &tag) // as docker load reads it
	if err != nil {
		t.Fatal(err)
	}
	config, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/solver"}) {
		t.Errorf("%+v", config)
	}
	if !strings.HasPrefix(named, "sha256:") {
		t.Errorf("it is named %s", named)
	}
	content, err := io.ReadAll(mutate.Extract(made))
	if err != nil || !bytes.Contains(content, program) {
		t.Errorf("%v, %d bytes of files without the program's", err, len(content))
	}
}

func TestStaticRefuses(t *testing.T) {
	program := build(t, "CGO_ENABLED=0", "GOARCH=amd64")
	other := bytes.Clone(program)
	binary.LittleEndian.PutUint16(other[18:], 8) // e_machine: MIPS
	sh, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	mpi := bytes.ReplaceAll(sh, []byte("\x00libc.so.6\x00"), []byte("\x00libmpi.so\x00")) // of the same length
	for want, b := range map[string][]byte{
		`linked to "libmpi.so", an MPI`: mpi,
		"docs/mpi.md (An image)":        sh,
		"build it with CGO_ENABLED=0":   sh,
		"no shell for a script":         []byte("#!/bin/sh\n"),
		"want x86-64 or arm64":          other,
		"it is no program of Linux (E":  nil,
	} {
		if _, err := Static(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestReference(t *testing.T) {
	for short, want := range map[string]string{
		"solver":                          "docker.io/library/solver:dev",
		"solver:v1.2_x":                   "docker.io/library/solver:v1.2_x",
		"team/solver":                     "docker.io/team/solver:dev",
		"localhost/solver:v1":             "localhost/solver:v1",
		"registry.example.com:5000/a/b:c": "registry.example.com:5000/a/b:c",
		"outrigger.dev/solver":            "outrigger.dev/solver:dev",
	} {
		if got, err := Reference(short); got != want || err != nil {
			t.Errorf("%s is %s, %v", short, got, err)
		}
	}
	for _, wrong := range []string{"", "Solver", "a b", "solver:", ":v1", "a//b", "solver:v1:v2", "/solver", strings.Repeat("a", 300)} {
		if got, err := Reference(wrong); err == nil {
			t.Errorf("%q is %s", wrong, got)
		}
	}
}
