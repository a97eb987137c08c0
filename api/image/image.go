// Package image writes container images as archives, without a container engine and
// without a base image: files in one layer, and a configuration with a user that is not
// root. The same files give the same bytes.
package image

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// uid is the user and the group of the programs: an unprivileged user, as in distroless images.
const uid = 65532

// ProgramsDir is the folder of an image's programs, relative to the root.
const ProgramsDir = "usr/local/bin"

// Config returns the configuration of an image without its command (OCI image specification,
// "Image Configuration"). Go and OCI have the same names of architectures.
func Config(arch string, created time.Time) *v1.ConfigFile {
	return &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			// By number, so that a kubelet can check that it is not root.
			User:       strconv.Itoa(uid) + ":" + strconv.Itoa(uid),
			Env:        []string{"PATH=/" + ProgramsDir},
			WorkingDir: "/",
		},
	}
}

// New returns an image with one layer of the files, the accounts and a folder for temporary
// files. by is the program that makes the image, for its history.
func New(config *v1.ConfigFile, files []File, by string) (v1.Image, error) {
	content, err := Tar(append(append([]File(nil), system...), files...))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	// The configuration is set first: Append adds the layer's digest to it.
	base, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	made, err := mutate.Append(mutate.ConfigMediaType(base, types.OCIConfigJSON), mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: config.Created, CreatedBy: by},
	})
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return made, nil
}
