package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// build makes a program of a few lines.
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

// untar reads a whole tar.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImage(t *testing.T) {
	program := build(t, "CGO_ENABLED=0", "GOARCH=arm64")
	arch, err := Static(program)
	if err != nil || arch != "arm64" {
		t.Fatal(arch, err)
	}
	i := &Image{Reference: "docker.io/library/solver:v1", Name: "solver", Program: program, Arch: arch}
	var out, again bytes.Buffer
	named, err := i.Write(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Write(&again); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("a second time it is another one: %v", err)
	}
	files := untar(t, &out)
	for name, content := range files { // blobs have the names that they claim
		if hex, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && hex != "" && digest(content) != "sha256:"+hex {
			t.Errorf("%s is %s", name, digest(content))
		}
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var config struct {
		Architecture string
		Config       struct {
			User       string
			Entrypoint []string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(files[name], into); err != nil {
			t.Fatalf("%s of %v: %v", name, slices.Sorted(maps.Keys(files)), err)
		}
	}
	read("index.json", &index)
	if d := index.Manifests[0]; d.Digest != named || d.Annotations["io.containerd.image.name"] != i.Reference || d.Annotations["org.opencontainers.image.ref.name"] != "v1" {
		t.Errorf("%+v", d)
	}
	read(blobPath(index.Manifests[0]), &manifest)
	read(blobPath(manifest.Config), &config)
	if config.Architecture != "arm64" || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/solver"}) {
		t.Errorf("%+v", config)
	}
	z, err := gzip.NewReader(bytes.NewReader(files[blobPath(manifest.Layers[0])]))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || digest(plain) != config.Rootfs.DiffIDs[0] {
		t.Errorf("%v, the layer is %s, and not %s", err, digest(plain), config.Rootfs.DiffIDs)
	}
	if got := untar(t, bytes.NewReader(plain)); !bytes.Equal(got["usr/local/bin/solver"], program) || got["tmp/"] == nil || got["etc/passwd"] == nil {
		t.Errorf("the layer has %v", slices.Sorted(maps.Keys(got)))
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
	for want, b := range map[string][]byte{
		"build it with CGO_ENABLED=0":  sh,
		"no shell for a script":        []byte("#!/bin/sh\n"),
		"want x86-64 or arm64":         other,
		"it is no program of Linux (E": nil,
	} {
		if _, err := Static(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestReference(t *testing.T) {
	for name, want := range map[string]string{
		"solver":                          "docker.io/library/solver:dev",
		"solver:v1.2_x":                   "docker.io/library/solver:v1.2_x",
		"team/solver":                     "docker.io/team/solver:dev",
		"localhost/solver:v1":             "localhost/solver:v1",
		"registry.example.com:5000/a/b:c": "registry.example.com:5000/a/b:c",
		"outrigger.dev/solver":            "outrigger.dev/solver:dev",
	} {
		if got, err := Reference(name); got != want || err != nil {
			t.Errorf("%s is %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "Solver", "a b", "solver:", ":v1", "a//b", "solver:v1:v2", "/solver", strings.Repeat("a", 300)} {
		if got, err := Reference(name); err == nil {
			t.Errorf("%q is %s", name, got)
		}
	}
}
