package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

var testSettings = &settings{version: "v1.2.3", revision: "abc", created: time.Unix(1000, 0).UTC()}

// write makes the archive of the image i from copies of a small program and
// returns its bytes.
func write(t *testing.T, i image) []byte {
	t.Helper()
	dir := t.TempDir()
	made := assembled(t, dir, i, runtime.GOARCH)
	out := filepath.Join(dir, "image.tar")
	if _, err := oci.Save(out, registry+i.name+":"+testSettings.version, made); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// assembled returns the image i for an architecture, of copies of a small program.
func assembled(t *testing.T, dir string, i image, arch string) v1.Image {
	t.Helper()
	built, err := build(t.Context(), dir, []string{"../cluster/holder"}, arch)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(built[0])
	if err != nil {
		t.Fatal(err)
	}
	var programs []string
	for _, p := range i.programs {
		name := filepath.Join(dir, filepath.Base(p))
		if err := os.WriteFile(name, content, 0o700); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, name)
	}
	made, err := testSettings.assemble(i, programs, nil, arch)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// entries returns the files of a tar, and its folders with no content.
func entries(t *testing.T, packed io.Reader) (map[string][]byte, []*tar.Header) {
	t.Helper()
	files := map[string][]byte{}
	var headers []*tar.Header
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = content
		headers = append(headers, h)
	}
}

// blob returns the path of the blob with this digest in a layout.
func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var into T
	if err := json.Unmarshal(text, &into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return into
}

var pair = image{name: "pair", about: "two programs", programs: []string{"./cmd/one", "./cmd/two"}}

// The same programs give the same bytes: what is assembled here has no times or paths
// of this machine. That an archive of the same files has the same bytes, and blobs by
// their digests, api/image tests.
func TestSameInputSameBytes(t *testing.T) {
	if !bytes.Equal(write(t, pair), write(t, pair)) {
		t.Error("the same programs give different archives")
	}
}

// The archive's two descriptions name the same image, and the image is what a cluster
// needs.
func TestArchive(t *testing.T) {
	files, _ := entries(t, bytes.NewReader(write(t, pair)))
	index := decode[v1.IndexManifest](t, files["index.json"])
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "outrigger.dev/pair:v1.2.3" {
		t.Fatalf("the layout has %+v", index.Manifests)
	}
	manifest := decode[v1.Manifest](t, files[blob(index.Manifests[0].Digest)])
	older := decode[[]struct {
		Config           string
		RepoTags, Layers []string
	}](t, files["manifest.json"])
	if older[0].Config != blob(manifest.Config.Digest) || !slices.Equal(older[0].Layers, []string{blob(manifest.Layers[0].Digest)}) ||
		older[0].RepoTags[0] != "outrigger.dev/pair:v1.2.3" {
		t.Errorf("manifest.json has %+v, the layout %+v", older, manifest)
	}

	config := decode[v1.ConfigFile](t, files[blob(manifest.Config.Digest)])
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/one"}) ||
		config.OS != "linux" || !config.Created.Time.Equal(testSettings.created) {
		t.Errorf("configuration: %+v", config)
	}
	for label, want := range map[string]string{"title": "pair", "version": "v1.2.3", "revision": "abc", "licenses": "Apache-2.0"} {
		if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	content, err := gzip.NewReader(bytes.NewReader(files[blob(manifest.Layers[0].Digest)]))
	if err != nil {
		t.Fatal(err)
	}
	checkFileSystem(t, content)
}

func checkFileSystem(t *testing.T, layer io.Reader) {
	t.Helper()
	_, headers := entries(t, layer)
	var got []string
	for _, h := range headers {
		got = append(got, fmt.Sprintf("%s %o", h.Name, h.Mode))
	}
	want := []string{
		"etc/ 755", "etc/group 644", "etc/passwd 644", "tmp/ 1777",
		"usr/ 755", "usr/local/ 755", "usr/local/bin/ 755", "usr/local/bin/one 755", "usr/local/bin/two 755",
		"usr/share/ 755", "usr/share/sbom/ 755", "usr/share/sbom/one.spdx.json 644", "usr/share/sbom/two.spdx.json 644",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestImageOfManyApplicationsHasNoEntryPoint(t *testing.T) {
	config := testSettings.config(image{name: "many", programs: []string{"./a"}, everything: true}, runtime.GOARCH)
	if config.Config.Entrypoint != nil {
		t.Errorf("it has the entry point %v", config.Config.Entrypoint)
	}
}

// Every program of the catalogue is in the tree, under one name in one image.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range catalogue {
		if seen[i.name] || i.about == "" {
			t.Errorf("%s: is there twice or says nothing about itself", i.name)
		}
		seen[i.name] = true
		within := map[string]bool{}
		for _, p := range i.programs {
			if _, err := os.Stat(filepath.Join("../..", p)); err != nil {
				t.Errorf("%s: %v", i.name, err)
			}
			if base := filepath.Base(p); within[base] {
				t.Errorf("%s: two programs are called %s", i.name, base)
			} else {
				within[base] = true
			}
		}
	}
}

func TestSourceDate(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "12": 12} {
		if got, err := sourceDate(text); err != nil || got.Unix() != want {
			t.Errorf("SOURCE_DATE_EPOCH=%q is %v (%v), want %d s", text, got, err, want)
		}
	}
	if _, err := sourceDate("today"); err == nil {
		t.Error("SOURCE_DATE_EPOCH=today is a time")
	}
}

// TestTwoArchitectures: one name has an image for each, of programs for it; who
// reads no index finds the first.
func TestTwoArchitectures(t *testing.T) {
	var made []v1.Image
	for _, arch := range []string{"amd64", "arm64"} {
		made = append(made, assembled(t, t.TempDir(), catalogue[0], arch))
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	digest, err := oci.Save(out, "outrigger.dev/x:v1", made...)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := entries(t, bytes.NewReader(packed))
	read := func(name string) (m v1.IndexManifest) {
		if err := json.Unmarshal(files[name], &m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return m
	}
	top := read("index.json")
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest || top.Manifests[0].Annotations["io.containerd.image.name"] != "outrigger.dev/x:v1" {
		t.Fatalf("the layout has %+v", top.Manifests)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, m := range read(blob(digest)).Manifests {
		var manifest v1.Manifest
		if err := json.Unmarshal(files[blob(m.Digest)], &manifest); err != nil {
			t.Fatal(err)
		}
		zipped, err := gzip.NewReader(bytes.NewReader(files[blob(manifest.Layers[0].Digest)]))
		if err != nil {
			t.Fatal(err)
		}
		inside, _ := entries(t, zipped)
		program, err := elf.NewFile(bytes.NewReader(inside["usr/local/bin/outrigger-sidecar"]))
		if err != nil {
			t.Fatal(err)
		}
		if want := machines[m.Platform.Architecture]; m.Platform.OS != "linux" || program.Machine != want {
			t.Errorf("%+v has a program for %v", m.Platform, program.Machine)
		}
		delete(machines, m.Platform.Architecture)
	}
	if len(machines) != 0 {
		t.Errorf("there is none for %v", machines)
	}
	if text := string(files["manifest.json"]); strings.Count(text, "Config") != 1 {
		t.Errorf("for older readers: %s", text)
	}
}

// TestLinks: a symbolic link of a package is one in the image, and files below
// files that no program reads are left out.
func TestLinks(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"usr/lib/a.so.1.2": "a library", "usr/share/doc/a/copyright": "text"} {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o750), os.WriteFile(at, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.so.1.2", filepath.Join(root, "usr/lib/a.so.1")); err != nil {
		t.Fatal(err)
	}
	files, err := tree(root)
	if err != nil {
		t.Fatal(err)
	}
	content, err := oci.Tar(files)
	if err != nil {
		t.Fatal(err)
	}
	_, headers := entries(t, bytes.NewReader(content))
	var got []string
	for _, h := range headers {
		if strings.HasPrefix(h.Name, "usr/lib/a") || strings.HasPrefix(h.Name, "usr/share/doc") {
			got = append(got, fmt.Sprintf("%s %c %s %d", h.Name, h.Typeflag, h.Linkname, h.Size))
		}
	}
	if diff := cmp.Diff([]string{"usr/lib/a.so.1 2 a.so.1.2 0", "usr/lib/a.so.1.2 0  9"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
