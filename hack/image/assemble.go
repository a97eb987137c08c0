package main

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// assemble makes an image of one layer.
func (s *settings) assemble(i image, programs []string, system []file, arch string) (v1.Image, error) {
	content, err := layer(programs, system, s.created)
	if err != nil {
		return nil, err
	}
	files, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	// The configuration first: adding a layer completes it with the layer's
	// digest.
	base, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), s.config(i, arch))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	made, err := mutate.Append(mutate.ConfigMediaType(base, types.OCIConfigJSON), mutate.Addendum{
		Layer:   files,
		History: v1.History{Created: v1.Time{Time: s.created}, CreatedBy: "hack/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return made, nil
}

// config is what a runtime reads: how to run the image, and what it is (OCI
// image specification, "Image Configuration" and "Annotations").
func (s *settings) config(i image, arch string) *v1.ConfigFile {
	config := &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: s.created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			// By number, so that a kubelet can see that it is not root.
			User:       strconv.Itoa(uid) + ":" + strconv.Itoa(uid),
			Env:        []string{"PATH=/" + programsDir},
			WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":       i.name,
				"org.opencontainers.image.description": i.about,
				"org.opencontainers.image.version":     s.version,
				"org.opencontainers.image.created":     s.created.Format(time.RFC3339),
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.source":      "https://github.com/outrigger-hpc/outrigger",
			},
		},
	}
	if i.stock {
		config.Config.Env = []string{"PATH=/usr/bin:/bin"}
	}
	if s.revision != "" {
		config.Config.Labels["org.opencontainers.image.revision"] = s.revision
	}
	if !i.everything {
		config.Config.Entrypoint = []string{path.Join("/", programsDir, filepath.Base(i.programs[0]))}
	}
	return config
}
