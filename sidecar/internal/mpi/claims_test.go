package mpi

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedImages checks that what the documents state about the image of an MPI
// program is true of the tested versions.
func TestDocumentedImages(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile("../../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, section, _ := strings.Cut(read("docs/mpi.md"), "\n## An image\n")
	section, _, _ = strings.Cut(section, "\n## ")
	wheel := regexp.MustCompile(`mpich==[0-9.]+`).FindString(read("hack/mpi/wheels.txt"))
	for _, claim := range []string{wheel, pmixFile, pmiFile, "libopenmpi-dev", "libopenmpi3", "CannotStart"} {
		if claim == "" || !strings.Contains(section, claim) {
			t.Errorf("docs/mpi.md, An image, does not say %q", claim)
		}
	}
	if n := strings.Count(section, "```Dockerfile\nFROM debian:12 AS build\n"); n != 2 {
		t.Errorf("%d recipes, want one for Open MPI and one for MPICH", n)
	}
}
