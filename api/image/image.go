// Package image writes container images as archives, without a container engine
// and without a base image: files in one layer, a user who is not root, and how to
// run it. The same files give the same bytes.
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

// uid is who programs run as: nobody in particular, and not root.
const uid = 65532

// ProgramsDir is where images have their programs, relative to the root.
const ProgramsDir = "usr/local/bin"

// Config is how an image is run, but for what it runs (OCI image specification,
// "Image Configuration"). The architecture is named as Go and OCI do.
func Config(arch string, created time.Time) *v1.ConfigFile {
	return &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			// By number, so that a kubelet can see that it is not root.
			User:       strconv.Itoa(uid) + ":" + strconv.Itoa(uid),
			Env:        []string{"PATH=/" + ProgramsDir},
			WorkingDir: "/",
		},
	}
}

// New makes an image of files, in one layer with the accounts and a folder for
// temporary files. By is the program that makes it.
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
	// The configuration first: adding a layer completes it with the layer's
	// digest.
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
