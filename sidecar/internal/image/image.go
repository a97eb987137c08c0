// Package image wraps a static program into a container image: an archive as `docker save`
// writes it, which container engines import. It needs no engine and no base image. The same
// program gives the same bytes.
package image

import (
	"path"
	"time"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// Image describes an image.
type Image struct {
	Reference string // full: see Reference
	Name      string // name of the program's file
	Program   []byte
	Arch      string // as Go and OCI name it: see Static
}

// Save writes the image's archive to the file called name, and returns the image's digest.
func (i *Image) Save(name string) (digest string, err error) {
	program := path.Join(oci.ProgramsDir, i.Name)
	config := oci.Config(i.Arch, time.Unix(0, 0).UTC())
	config.Config.Entrypoint = []string{"/" + program}
	made, err := oci.New(config, []oci.File{{Path: program, Mode: 0o755, Content: i.Program}}, "outrigger image")
	if err != nil {
		return "", err
	}
	sum, err := oci.Save(name, i.Reference, made)
	return sum.String(), err
}
