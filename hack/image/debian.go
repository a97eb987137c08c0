package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// debs is the folder in which hack/rdmavm/packages stores Debian's packages, and headers is the
// folder in which it unpacks the headers of libibverbs.
const (
	debs    = "bin/rdmavm/debs"
	headers = "bin/rdmavm/root/usr/include"
)

// multiarch is the directory of Debian's libraries on amd64, the architecture of the image for
// RDMA, and loader is the name of the dynamic loader.
const (
	multiarch = "usr/lib/x86_64-linux-gnu"
	loader    = "ld-linux-x86-64.so.2"
)

// debianPackages are the packages with the libraries that a sidecar for RDMA loads.
var debianPackages = []string{"libc6", "libgcc-s1", "gcc-12-base", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"}

// debianFiles returns the libraries of debianPackages that the sidecar needs, the list of
// libibverbs' providers, the licences of the packages, and their bill of materials.
func debianFiles(dir string, created time.Time) ([]oci.File, error) {
	root, err := os.MkdirTemp("", "outrigger-debian-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	d := &debian{root: root, packages: debianPackages, have: map[string]bool{}}
	bill, err := d.unpack(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; run hack/rdmavm/packages", err)
	}
	for _, name := range d.packages {
		if name != "libgcc-s1" { // gcc-12-base has the licence of libgcc-s1
			d.addFiles("usr/share/doc/" + name + "/copyright")
		}
	}
	d.addFiles("etc/libibverbs.d/*")
	for _, l := range []string{"libibverbs.so.1", "libc.so.6", "libgcc_s.so.1", loader} {
		d.library(l)
	}
	d.providers()
	if d.err != nil {
		return nil, d.err
	}
	text, err := packageBill("debian", bill, created)
	return append(d.files, oci.File{Path: path.Join(sbomDir, "debian.spdx.json"), Mode: 0o644, Content: text}), err
}

// debian is an unpacked set of packages, and the files of it that an image gets.
type debian struct {
	root     string
	packages []string
	files    []oci.File
	have     map[string]bool // names of the libraries that the image has
	err      error
}

func (d *debian) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// unpack unpacks the packages, which are in dir, and describes them.
func (d *debian) unpack(dir string) (bill []component, err error) {
	for _, name := range d.packages {
		deb, err := single(filepath.Join(dir, name+"_*.deb"))
		if err != nil {
			return nil, err
		}
		c, err := unpackDeb(deb, d.root)
		if err != nil {
			return nil, err
		}
		bill = append(bill, c)
	}
	return bill, nil
}

// single returns the only file that matches a pattern.
func single(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("there are %d files %s, want 1", len(found), pattern)
	}
	return found[0], nil
}

// unpackDeb unpacks a package and describes it.
func unpackDeb(deb, root string) (component, error) {
	if out, err := exec.Command("dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
		return component{}, fmt.Errorf("dpkg-deb -x %s: %w: %s", deb, err, out)
	}
	return describeDeb(deb)
}

// describeDeb returns the entry of a package in a bill.
func describeDeb(deb string) (component, error) {
	content, err := os.ReadFile(deb)
	if err != nil {
		return component{}, err
	}
	parts := strings.Split(strings.TrimSuffix(filepath.Base(deb), ".deb"), "_")
	if len(parts) != 3 {
		return component{}, fmt.Errorf("%s is not named NAME_VERSION_ARCHITECTURE.deb", deb)
	}
	name := parts[0]
	version, err := url.PathUnescape(parts[1])
	if err != nil {
		return component{}, fmt.Errorf("%s: %w", deb, err)
	}
	return packaged(name, version, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, url.PathEscape(version), parts[2]), content), nil
}

// addFiles adds the files that match a pattern.
func (d *debian) addFiles(pattern string) {
	found, err := filepath.Glob(filepath.Join(d.root, pattern))
	if err != nil || len(found) == 0 {
		d.fail(fmt.Errorf("the packages have no %s", pattern))
	}
	for _, f := range found {
		name, err := filepath.Rel(d.root, f)
		if err != nil {
			d.fail(err)
			return
		}
		d.add(filepath.ToSlash(name), f, 0o644)
	}
}

func (d *debian) add(name, from string, mode fs.FileMode) {
	content, err := os.ReadFile(from)
	if err != nil {
		d.fail(err)
	}
	d.files = append(d.files, oci.File{Path: name, Mode: mode, Content: content})
}

// library adds a library and the libraries that it needs. Packages have libraries in /lib or in
// /usr/lib, and BLAS in a folder of its own. The image has all libraries in one folder, except
// for the loader, which is at the path that programs name.
func (d *debian) library(name string) {
	if d.have[name] || d.err != nil {
		return
	}
	d.have[name] = true
	for _, dir := range []string{multiarch, strings.TrimPrefix(multiarch, "usr/"), multiarch + "/blas"} {
		at, err := filepath.EvalSymlinks(filepath.Join(d.root, dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			d.fail(err)
			return
		}
		to := path.Join(multiarch, name)
		if name == loader {
			to = path.Join("lib64", name)
		}
		d.add(to, at, 0o755)
		d.needs(at)
		return
	}
	d.fail(fmt.Errorf("none of the packages %v has %s", d.packages, name))
}

// needs adds the libraries that a program or library needs.
func (d *debian) needs(at string) {
	content, err := os.ReadFile(at)
	if err != nil {
		d.fail(err)
		return
	}
	list, err := needed(content)
	if err != nil {
		d.fail(fmt.Errorf("%s: %w", at, err))
	}
	for _, l := range list {
		d.library(l)
	}
}

// complete adds programs of the packages, and the libraries that these programs and the files
// need, except for libraries that are among the files.
func (d *debian) complete(files []oci.File, programs []string) {
	for _, f := range files {
		d.have[path.Base(f.Path)] = true
	}
	for _, f := range files {
		list, err := needed(f.Content)
		if err != nil {
			d.fail(fmt.Errorf("%s: %w", f.Path, err))
		}
		for _, l := range list {
			d.library(l)
		}
	}
	for _, name := range programs {
		d.program(name)
	}
}

// program adds a program, or a link to one, with the libraries that it needs.
func (d *debian) program(name string) {
	at := filepath.Join(d.root, name)
	f, err := fileAt(at, name)
	if err != nil {
		d.fail(err)
		return
	}
	d.files = append(d.files, f)
	if f.Link == "" {
		d.needs(at)
	}
}

// needed returns the libraries that a program or a library loads; none for another file.
func needed(content []byte) ([]string, error) {
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ImportedLibraries()
}

// providers adds the drivers that libibverbs loads by name.
func (d *debian) providers() {
	found, err := filepath.Glob(filepath.Join(d.root, multiarch, "libibverbs", "*.so"))
	if err != nil || len(found) == 0 {
		d.fail(errors.New("the packages have no provider of libibverbs"))
	}
	for _, f := range found {
		at, err := filepath.EvalSymlinks(f)
		if err != nil {
			d.fail(err)
			return
		}
		d.add(path.Join(multiarch, "libibverbs", filepath.Base(f)), at, 0o755)
		d.needs(at)
	}
}

// rdmaFlags returns the flags with which a sidecar for RDMA is compiled: it is linked to glibc,
// whose loader loads libibverbs.
func rdmaFlags() (tags string, environ []string, err error) {
	at, err := filepath.Abs(headers)
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(at, "infiniband", "verbs.h")); err != nil {
		return "", nil, fmt.Errorf("the headers of libibverbs are not here; run hack/rdmavm/packages: %w", err)
	}
	// Go looks up names: the image does not have the files that glibc needs to do so.
	return "rdma,netgo,osusergo", []string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -I" + at}, nil
}
