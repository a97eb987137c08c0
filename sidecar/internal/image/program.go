package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Static checks that a program needs no other file, and returns its architecture: an image
// of Outrigger has no library and no shell.
func Static(program []byte) (arch string, err error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", errors.New("it is no program of Linux (ELF): an image has no shell for a script")
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", dynamic(f)
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("it is for %v: want x86-64 or arm64", f.Machine)
}

// dynamic returns the remedy for a program that needs libraries.
func dynamic(f *elf.File) error {
	needed, _ := f.ImportedLibraries() // a damaged program names none
	for _, name := range needed {
		if strings.HasPrefix(name, "libmpi.so") || strings.HasPrefix(name, "libmpi_") || strings.HasPrefix(name, "libmpich") {
			return fmt.Errorf("it is linked to %.80q, an MPI, and this image would have no library: make an image that has the program and its MPI; docs/mpi.md (An image) has a Dockerfile for Open MPI and one for MPICH", name)
		}
	}
	return errors.New("it is linked dynamically, and an image has no libraries: build it with CGO_ENABLED=0, or link it with -static; a program that uses an MPI needs an image with that MPI, as docs/mpi.md (An image) has it")
}

// referenceForm matches a name with a tag (OCI distribution specification, "Pulling
// manifests"), with at most one port in it.
var referenceForm = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// ErrReference reports an invalid image name.
var ErrReference = errors.New("is no image's name")

// Reference returns the full name for a short one, as kubelets and docker do: solver:v1 is
// docker.io/library/solver:v1. Without a tag it is dev, because kubelets ask a registry
// each time for an image with the tag latest.
func Reference(name string) (string, error) {
	if !strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		name += ":dev"
	}
	if !referenceForm.MatchString(name) || len(name) > 255 {
		return "", fmt.Errorf("%q %w: want one such as solver:v1 or registry.example.com/team/solver:v1", name, ErrReference)
	}
	first, rest, found := strings.Cut(name, "/")
	switch host := strings.ContainsAny(first, ".:") || first == "localhost"; {
	case !found:
		return "docker.io/library/" + name, nil
	case !host:
		return "docker.io/" + first + "/" + rest, nil
	}
	return name, nil
}
