package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Save writes an image to the file called name in the format of `docker save`: a tar of
// an OCI image layout, which containerd, podman and skopeo read, and a manifest.json for
// older programs. Both name the same blobs. Images of several architectures are in one
// index; older programs see only the first. The reference must have a tag. Save returns
// the digest of the image or index that the reference names.
func Save(name, reference string, made ...v1.Image) (v1.Hash, error) {
	named, digest, err := target(made)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("archive: %w", err)
	}
	return digest, writeLayout(name, reference, named, made[0])
}

// appender adds an image, or an index of them, to a layout.
type appender func(folder layout.Path, options ...layout.Option) error

// target returns what a reference to the images names: the single image, or an index of all,
// and its digest.
func target(made []v1.Image) (appender, v1.Hash, error) {
	if len(made) == 1 {
		digest, err := made[0].Digest()
		return func(folder layout.Path, o ...layout.Option) error { return folder.AppendImage(made[0], o...) }, digest, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range made {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	digest, err := index.Digest()
	return func(folder layout.Path, o ...layout.Option) error { return folder.AppendIndex(index, o...) }, digest, err
}

func writeLayout(name, reference string, add appender, first v1.Image) error {
	dir, err := os.MkdirTemp(filepath.Dir(name), ".layout-")
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer os.RemoveAll(dir)
	folder, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("image layout: %w", err)
	}
	err = add(folder, layout.WithAnnotations(map[string]string{
		// The first annotation is containerd's, the full name. The second is defined by
		// the layout, which leaves its meaning open; readers use it as the tag.
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": reference[strings.LastIndexByte(reference, ':')+1:],
	}))
	if err != nil {
		return fmt.Errorf("image layout: %w", err)
	}
	if err := writeManifest(dir, reference, first); err != nil {
		return fmt.Errorf("manifest.json: %w", err)
	}
	files, err := collect(dir)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	content, err := Tar(files)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	// Rename the file only when it is complete.
	whole := filepath.Join(dir, "whole")
	if err := os.WriteFile(whole, content, 0o644); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return os.Rename(whole, name)
}

// writeManifest writes the older description (Docker image specification 1.2,
// "Combined Image JSON + Filesystem Changeset Format").
func writeManifest(dir, reference string, made v1.Image) error {
	config, err := made.ConfigName()
	if err != nil {
		return err
	}
	layers, err := made.Layers()
	if err != nil {
		return err
	}
	entry := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: blob(config), RepoTags: []string{reference}}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		entry.Layers = append(entry.Layers, blob(digest))
	}
	text, err := json.Marshal([]any{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644)
}

// blob returns the path of the blob with a digest in an image layout.
func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// collect reads all files below a folder.
func collect(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		files = append(files, File{Path: filepath.ToSlash(relative), Mode: 0o644, Content: content})
		return nil
	})
	return files, err
}
