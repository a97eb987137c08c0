package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// mpiDir is the directory of the files that the launcher provides to MPI programs. It is next to
// the directory of the programs.
const mpiDir = "usr/local/lib/outrigger"

// mpiNames are the names of those files, as in hack/c.
var mpiNames = []string{"liboutrigger-fi.so", "liboutrigger-alloc.so", "liboutrigger-steps.so", "liboutrigger-check.so", "libpmi.so", "outrigger-pmix"}

// triplets are the names that compilers use for architectures.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// mpiFiles builds the libraries that MPI programs load. They use only symbols of an old glibc,
// since they run in the images of others.
func (s *settings) mpiFiles(ctx context.Context, arch string) ([]oci.File, error) {
	out, err := os.MkdirTemp("", "outrigger-mpi-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	cc := "gcc"
	if arch != runtime.GOARCH {
		cc = triplets[arch] + "-gcc"
	}
	cmd := exec.CommandContext(ctx, "hack/c", "provider")
	cmd.Env = append(os.Environ(), "OUT="+out, "CC="+cc, "CFLAGS=-g0", "LDFLAGS=-s")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("what MPI programs load cannot be built (make images MPI=no leaves it out): %w\n%s", err, text)
	}
	compiler, err := exec.CommandContext(ctx, cc, "-dumpfullversion").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cc, err)
	}
	var files []oci.File
	for _, name := range mpiNames {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		files = append(files, oci.File{Path: path.Join(mpiDir, name), Mode: 0o755, Content: content})
	}
	bill, err := mpiBill(files, s.version, strings.TrimSpace(string(compiler)), headersOfMPI, s.created)
	return append(files, oci.File{Path: path.Join(sbomDir, "mpi.spdx.json"), Mode: 0o644, Content: bill}), err
}

// mpiBill returns a bill of materials, as SPDX 2.3 in JSON, of the files and of what they were
// built with. The files are linked only to glibc, which the application's image provides; of
// libfabric and OpenPMIx they use only the headers.
func mpiBill(files []oci.File, version, compiler string, headers []header, created time.Time) ([]byte, error) {
	sums := sha256.New()
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: "mpi",
		Creation: creation{Created: created.Format(time.RFC3339), Creators: []string{"Organization: Outrigger", "Tool: outrigger-hack-image"}},
	}
	tools := []component{built("gcc", compiler)}
	for _, h := range headers {
		v, err := h.version()
		if err != nil {
			return nil, err
		}
		tools = append(tools, built(h.name, v))
	}
	for i, f := range files {
		sum := fmt.Sprintf("%x", sha256.Sum256(f.Content))
		sums.Write([]byte(sum)) // a hash never fails
		c := component{
			ID: fmt.Sprintf("SPDXRef-File-%d", i), Name: path.Base(f.Path), Version: version, Download: unknown,
			Checksums:        []checksum{{Algorithm: "SHA256", Value: sum}},
			LicenseConcluded: unknown, LicenseDeclared: "Apache-2.0", Copyright: unknown, Purpose: "LIBRARY",
		}
		doc.Packages = append(doc.Packages, c)
		doc.Relationships = append(doc.Relationships, relationship{From: documentID, Kind: "DESCRIBES", To: c.ID})
		for _, t := range tools {
			doc.Relationships = append(doc.Relationships, relationship{From: t.ID, Kind: "BUILD_DEPENDENCY_OF", To: c.ID})
		}
	}
	doc.Packages = append(doc.Packages, tools...)
	doc.Namespace = fmt.Sprintf("https://outrigger.dev/spdx/mpi-%x", sums.Sum(nil))
	return json.MarshalIndent(doc, "", "  ")
}

// built returns the entry of a component that was used for the build and is not in the result.
func built(name, version string) component {
	return component{
		ID: "SPDXRef-Build-" + name, Name: name, Version: version, Download: unknown,
		LicenseConcluded: unknown, LicenseDeclared: unknown, Copyright: unknown, Purpose: "OTHER",
	}
}

// header is a header file that defines the version of its library.
type header struct {
	name, pattern string
	numbers       []string // names of the macros with the parts of the version
}

var headersOfMPI = []header{
	{"libfabric", "/usr/include/rdma/fabric.h", []string{"FI_MAJOR_VERSION", "FI_MINOR_VERSION"}},
	{"openpmix", "/usr/lib/*/pmix2/include/pmix_version.h", []string{"PMIX_VERSION_MAJOR", "PMIX_VERSION_MINOR", "PMIX_VERSION_RELEASE"}},
}

func (h *header) version() (string, error) {
	found, err := filepath.Glob(h.pattern)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("the version of %s: there is no %s", h.name, h.pattern)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return "", err
	}
	var parts []string
	for _, macro := range h.numbers {
		m := regexp.MustCompile(`(?m)^\s*#\s*define\s+` + macro + `\s+(\d+)`).FindSubmatch(text)
		if m == nil {
			return "", fmt.Errorf("the version of %s: %s does not define %s", h.name, found[0], macro)
		}
		parts = append(parts, string(m[1]))
	}
	return strings.Join(parts, "."), nil
}
