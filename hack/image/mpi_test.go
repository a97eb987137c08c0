package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// TestBillOfMPI: each file is in the bill with its checksum, and what it was built
// with, by the versions that the headers themselves say.
func TestBillOfMPI(t *testing.T) {
	dir := t.TempDir()
	text := "#ifndef A\n# define FABRIC_MAJOR 1\n#define FABRIC_MINOR\t17 /* more */\n"
	if err := os.WriteFile(filepath.Join(dir, "fabric.h"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	headers := []header{{"libfabric", filepath.Join(dir, "f*.h"), []string{"FABRIC_MAJOR", "FABRIC_MINOR"}}}
	files := []oci.File{{Path: mpiDir + "/a.so", Content: []byte("a library")}, {Path: mpiDir + "/b", Content: []byte("a program")}}
	raw, err := mpiBill(files, "v1", "12.2.0", headers, testSettings.created)
	if err != nil {
		t.Fatal(err)
	}
	bill := decode[document](t, raw)
	versions := map[string]string{}
	for _, p := range bill.Packages {
		versions[p.Name] = p.Version
		if len(p.Checksums) > 0 {
			versions[p.Name] += " " + p.Checksums[0].Value
		}
	}
	for name, want := range map[string]string{
		"a.so": fmt.Sprintf("v1 %x", sha256.Sum256([]byte("a library"))), "b": fmt.Sprintf("v1 %x", sha256.Sum256([]byte("a program"))),
		"gcc": "12.2.0", "libfabric": "1.17",
	} {
		if versions[name] != want {
			t.Errorf("%s is %q, want %q", name, versions[name], want)
		}
	}
	if len(bill.Relationships) != 2*(1+2) {
		t.Errorf("%d relationships: %+v", len(bill.Relationships), bill.Relationships)
	}
	for _, h := range []header{
		{"libfabric", filepath.Join(dir, "none.h"), nil},
		{"libfabric", filepath.Join(dir, "fabric.h"), []string{"FABRIC_PATCH"}},
	} {
		if _, err := mpiBill(files, "v1", "12", []header{h}, testSettings.created); err == nil || !strings.Contains(err.Error(), "the version of libfabric") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}
