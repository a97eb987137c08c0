package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// made returns an image of two files, in folders that are not in the list of files.
func made(t *testing.T, arch string) v1.Image {
	t.Helper()
	i, err := New(Config(arch, time.Unix(7, 0).UTC()), []File{
		{Path: "opt/a/b/program", Mode: 0o755, Content: []byte("a program of " + arch)},
		{Path: "opt/a/link", Link: "b/program"},
	}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// saved returns the archive of images, and the digest of what its reference names.
func saved(t *testing.T, reference string, images ...v1.Image) ([]byte, v1.Hash) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "x.tar")
	digest, err := Save(name, reference, images...)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("Save left %v, %v; want only the archive", left, err)
	}
	return content, digest
}

func entries(t *testing.T, content []byte) (files map[string][]byte, headers []string) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		} else if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		headers = append(headers, fmt.Sprintf("%s %o %s", h.Name, h.Mode, h.Linkname))
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: owner %d:%d, time %v; want 0:0 and 1970", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
}

func TestSave(t *testing.T) {
	const reference = "registry.example.com:5000/team/solver:v1"
	content, digest := saved(t, reference, made(t, "arm64"))
	if again, _ := saved(t, reference, made(t, "arm64")); !bytes.Equal(content, again) {
		t.Error("the same files give different archives")
	}
	files, _ := entries(t, content)
	for name, blob := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && sum != "" && fmt.Sprintf("%x", sha256.Sum256(blob)) != sum {
			t.Errorf("the digest of %s does not match its name", name)
		}
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index.json: %v, %d manifests, want 1; files %v", err, len(index.Manifests), slices.Sorted(maps.Keys(files)))
	}
	top := index.Manifests[0]
	want := map[string]string{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": "v1"}
	if diff := cmp.Diff(want, top.Annotations); diff != "" || top.Digest != digest {
		t.Errorf("digest %v, want %v; annotations (-want +got):\n%s", top.Digest, digest, diff)
	}
	var older []struct{ RepoTags []string }
	if err := json.Unmarshal(files["manifest.json"], &older); err != nil || len(older) != 1 || !slices.Equal(older[0].RepoTags, []string{reference}) {
		t.Errorf("manifest.json: %+v, %v", older, err)
	}
}

// TestSaveOfTwo checks that a reference to images of two architectures names an index of both.
func TestSaveOfTwo(t *testing.T) {
	content, digest := saved(t, "a:b", made(t, "amd64"), made(t, "arm64"))
	files, _ := entries(t, content)
	var under v1.IndexManifest
	if err := json.Unmarshal(files[blob(digest)], &under); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range under.Manifests {
		got = append(got, m.Platform.OS+"/"+m.Platform.Architecture)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFileSystem(t *testing.T) {
	layers, err := made(t, "amd64").Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), err)
	}
	plain, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	_, got := entries(t, content)
	want := []string{
		"etc/ 755 ", "etc/group 644 ", "etc/passwd 644 ",
		"opt/ 755 ", "opt/a/ 755 ", "opt/a/b/ 755 ", "opt/a/b/program 755 ", "opt/a/link 777 b/program", "tmp/ 1777 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
