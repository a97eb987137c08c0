package main

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// library returns a minimal shared library with the names of the libraries that it needs.
func library(t *testing.T, needs ...string) string {
	t.Helper()
	names := []byte{0}
	var dynamic []elf.Dyn64
	for _, n := range needs {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names = append(append(names, n...), 0)
	}
	head := elf.Header64{Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64, Shnum: 3}
	copy(head.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	head.Shoff, head.Shstrndx = 64, 1
	const begin = 64 + 3*64
	sections := []elf.Section64{
		{},
		{Type: uint32(elf.SHT_STRTAB), Off: begin, Size: uint64(len(names))},
		{Type: uint32(elf.SHT_DYNAMIC), Off: begin + uint64(len(names)), Size: uint64(16 * len(dynamic)), Link: 1, Entsize: 16},
	}
	var out bytes.Buffer
	for _, part := range []any{head, sections, names, dynamic} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// wheelFile writes a wheel.
func wheelFile(t *testing.T, name string, files map[string]string) {
	t.Helper()
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for at, content := range files {
		h := &zip.FileHeader{Name: at}
		h.SetMode(0o755)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listed returns files with their modes, and what links point to.
func listed(files []oci.File) (list []string) {
	for _, f := range files {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %o %s", f.Path, f.Mode, f.Link)))
	}
	slices.Sort(list)
	return list
}

// TestWheel: an image gets what is named of a package's prefix, with its modes, and
// a file that is not there any more is an error.
func TestWheel(t *testing.T) {
	dir := t.TempDir()
	wheelFile(t, filepath.Join(dir, "some_mpi-1.2-py3-none-any.whl"), map[string]string{
		"some_mpi-1.2.data/data/lib/libmpi.so.12":        "library",
		"some_mpi-1.2.data/data/lib/plugins/libucx.so.0": "plugin",
		"some_mpi-1.2.data/data/include/mpi.h":           "header",
		"some_mpi-1.2.dist-info/METADATA":                "text",
		"elsewhere/lib/libother.so.1":                    "library",
	})
	w := &wheel{name: "some_mpi", to: "opt/mpi", files: []string{"lib/*.so.*"}}
	files, c, err := w.unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"opt/mpi/lib/libmpi.so.12 755"}, listed(files)); diff != "" || string(files[0].Content) != "library" {
		t.Errorf("files (-want +got):\n%s%q", diff, files[0].Content)
	}
	if c.Version != "1.2" || c.References[0].Locator != "pkg:pypi/some-mpi@1.2" || len(c.Checksums[0].Value) != 64 {
		t.Errorf("the bill has %+v", c)
	}
	for want, w := range map[string]*wheel{
		"it has no bin/mpiexec": {name: "some_mpi", files: []string{"lib/*.so.*", "bin/mpiexec"}},
		"there are 0 files":     {name: "other", files: []string{"lib/*"}},
	} {
		if _, _, err := w.unpack(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	wheelFile(t, filepath.Join(dir, "some_mpi-1.3-py3-none-any.whl"), nil)
	if _, _, err := w.unpack(dir); err == nil || !strings.Contains(err.Error(), "there are 2 files") {
		t.Errorf("of two versions: %v", err)
	}
}

// TestComplete: of Debian's packages come the programs that are named, the libraries
// that anything needs, and theirs; what the image has already does not.
func TestComplete(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"bin/dash":                         library(t, "libc.so.6"),
		"lib/x86_64-linux-gnu/libc.so.6":   library(t),
		"lib/x86_64-linux-gnu/libm.so.6":   library(t, "libc.so.6"),
		multiarch + "/libstdc++.so.6.0.30": library(t, "libc.so.6", "libm.so.6"),
		multiarch + "/blas/libblas.so.3":   library(t),
		multiarch + "/libmpi.so.12":        library(t, "libunwanted.so.1"),
		multiarch + "/libnobody.so.1":      library(t),
	} {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o755); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	for at, to := range map[string]string{"bin/sh": "dash", multiarch + "/libstdc++.so.6": "libstdc++.so.6.0.30"} {
		if err := os.Symlink(to, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	have := []oci.File{
		{Path: "opt/bin/solver", Content: []byte(library(t, "libmpi.so.12", "libstdc++.so.6", "libblas.so.3"))},
		{Path: "opt/lib/libmpi.so.12", Content: []byte(library(t, "libc.so.6"))},
		{Path: "opt/share/help.txt", Content: []byte("text")},
	}
	d := &debian{root: root, packages: []string{"libc6"}, have: map[string]bool{}}
	d.complete(have, []string{"bin/dash", "bin/sh"})
	if d.err != nil {
		t.Fatal(d.err)
	}
	want := []string{
		"bin/dash 755", "bin/sh 0 dash",
		multiarch + "/libblas.so.3 755", multiarch + "/libc.so.6 755", multiarch + "/libm.so.6 755", multiarch + "/libstdc++.so.6 755",
	}
	if diff := cmp.Diff(want, listed(d.files)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	d = &debian{root: root, packages: []string{"libc6"}, have: map[string]bool{}}
	d.complete([]oci.File{{Path: "opt/bin/solver", Content: []byte(library(t, "libfortran.so.5"))}}, nil)
	if d.err == nil || !strings.Contains(d.err.Error(), "libfortran.so.5") {
		t.Errorf("without a library: %v", d.err)
	}
}

// TestPackageBill: each package has a different identifier, in the form that SPDX allows.
func TestPackageBill(t *testing.T) {
	raw, err := packageBill("stock", []component{
		packaged("libstdc++6", "12", "pkg:deb/debian/libstdc++6@12", []byte("a")),
		packaged("mpich", "5.0.2", "pkg:pypi/mpich@5.0.2", []byte("b")),
	}, time.Unix(0, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	bill := decode[document](t, raw)
	valid := regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`) // SPDX 2.3, 7.2
	for i, p := range bill.Packages {
		if r := bill.Relationships[i]; !valid.MatchString(p.ID) || r.To != p.ID || r.From != documentID {
			t.Errorf("%s has the id %q, and the relationship %+v", p.Name, p.ID, r)
		}
	}
	if len(bill.Packages) != 2 {
		t.Errorf("%d packages", len(bill.Packages))
	}
}
