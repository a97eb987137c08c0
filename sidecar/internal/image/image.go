// Package image wraps a static program into a container image: an archive as
// `docker save` writes, which container engines import, without any of them and
// without a base image. The same program gives the same bytes.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"
)

// uid is who the program runs as: nobody in particular, and not root.
const uid = 65532

// programsDir is where the program is.
const programsDir = "usr/local/bin"

// Image is what is written.
type Image struct {
	Reference string // full: see Reference
	Name      string // of the program's file
	Program   []byte
	Arch      string // as Go and OCI name it: see Static
}

// file is an entry of a tar; a folder's path ends in a slash.
type file struct {
	path    string
	mode    int64
	content []byte
}

// layer is the file system: the program, accounts by which it finds its own name,
// and a folder for temporary files.
func (i *Image) layer() []file {
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{programsDir + "/", 0o755, nil},
		{path.Join(programsDir, i.Name), 0o755, i.Program},
	}
}

// writeTar writes files as root's, without times.
func writeTar(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if f.path[len(f.path)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

// descriptor names a blob (OCI image specification, "Content Descriptors").
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// archive collects the blobs of an image layout.
type archive struct{ files []file }

func (a *archive) blob(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	a.files = append(a.files, file{blobPath(d), 0o644, content})
	return d
}

func (a *archive) object(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	return a.blob(mediaType, b), err
}

func blobPath(d descriptor) string { return "blobs/sha256/" + d.Digest[len("sha256:"):] }

// Write writes the archive: an OCI image layout, which containerd, podman and skopeo
// read, with docker's manifest.json beside it. It returns the image's digest.
func (i *Image) Write(w io.Writer) (string, error) {
	var plain, packed bytes.Buffer
	if err := writeTar(&plain, i.layer()); err != nil {
		return "", fmt.Errorf("layer: %w", err)
	}
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return "", fmt.Errorf("layer: %w", err)
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("layer: %w", err)
	}
	var a archive
	layer := a.blob(typeLayer, packed.Bytes())
	config, err := a.object(typeConfig, i.config(digest(plain.Bytes())))
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	manifest, err := a.object(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{layer}})
	if err != nil {
		return "", fmt.Errorf("manifest: %w", err)
	}
	if err := a.describe(i.Reference, manifest, config, layer); err != nil {
		return "", err
	}
	if err := writeTar(w, a.files); err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	return manifest.Digest, nil
}

// config is how to run the image (OCI image specification, "Image Configuration").
func (i *Image) config(layer string) any {
	user := strconv.Itoa(uid) + ":" + strconv.Itoa(uid) // by number, so that a kubelet sees that it is not root
	return map[string]any{
		"architecture": i.Arch, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{
			"User": user, "Env": []string{"PATH=/" + programsDir}, "WorkingDir": "/",
			"Entrypoint": []string{path.Join("/", programsDir, i.Name)},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []any{map[string]any{"created": time.Unix(0, 0).UTC(), "created_by": "outrigger image"}},
	}
}

// describe adds what names the blobs: for today's readers, and for docker's older ones.
func (a *archive) describe(reference string, manifest, config, layer descriptor) error {
	manifest.Annotations = map[string]string{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tagOf(reference)}
	for _, x := range []struct {
		path string
		v    any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifest}}},
		{"manifest.json", []any{map[string]any{"Config": blobPath(config), "RepoTags": []string{reference}, "Layers": []string{blobPath(layer)}}}},
	} {
		b, err := json.Marshal(x.v)
		if err != nil {
			return fmt.Errorf("%s: %w", x.path, err)
		}
		a.files = append(a.files, file{x.path, 0o644, b})
	}
	a.files = append([]file{{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil}}, a.files...)
	return nil
}
