package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

const sbomDir = "usr/share/sbom"

// assemble makes an image of the programs, their bills of materials, and the files that they load.
func (s *settings) assemble(i image, programs []string, system []oci.File, arch string) (v1.Image, error) {
	files, err := s.files(programs, system)
	if err != nil {
		return nil, err
	}
	return oci.New(s.config(i, arch), files, "hack/image")
}

func (s *settings) files(programs []string, system []oci.File) ([]oci.File, error) {
	files := slices.Clone(system)
	for _, name := range programs {
		program, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := filepath.Base(name)
		bill, err := billOfMaterials(base, program, s.created)
		if err != nil {
			return nil, fmt.Errorf("bill of materials of %s: %w", base, err)
		}
		files = append(files,
			oci.File{Path: path.Join(oci.ProgramsDir, base), Mode: 0o755, Content: program},
			oci.File{Path: path.Join(sbomDir, base+".spdx.json"), Mode: 0o644, Content: bill})
	}
	return files, nil
}

// config returns the configuration and the annotations that a runtime reads: how to run the
// image, and its description (OCI image specification, "Image Configuration", "Annotations").
func (s *settings) config(i image, arch string) *v1.ConfigFile {
	file := oci.Config(arch, s.created)
	c := &file.Config
	c.Labels = map[string]string{
		"org.opencontainers.image.title":       i.name,
		"org.opencontainers.image.description": i.about,
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.created":     s.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/outrigger-hpc/outrigger",
	}
	if i.stock != nil {
		c.Env = i.stock.env
	}
	if s.revision != "" {
		c.Labels["org.opencontainers.image.revision"] = s.revision
	}
	if !i.everything {
		c.Entrypoint = []string{path.Join("/", oci.ProgramsDir, filepath.Base(i.programs[0]))}
	}
	return file
}
