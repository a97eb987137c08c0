package main

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
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

// debs is where hack/rdmavm/packages leaves Debian's packages, and headers where
// it unpacks those of libibverbs.
const (
	debs    = "bin/rdmavm/debs"
	headers = "bin/rdmavm/root/usr/include"
)

// multiarch is where Debian has libraries on amd64, the architecture of the
// image for RDMA.
const (
	multiarch = "usr/lib/x86_64-linux-gnu"
	loader    = "ld-linux-x86-64.so.2"
)

// debianPackages are what a sidecar for RDMA loads.
var debianPackages = []string{"libc6", "libgcc-s1", "gcc-12-base", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"}

// debianFiles are the libraries of the packages that are needed, the providers'
// list, the packages' licences, and the bill of what they are.
func debianFiles(dir string, created time.Time) ([]oci.File, error) {
	root, err := os.MkdirTemp("", "outrigger-debian-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	d := &debian{root: root, have: map[string]bool{}}
	var bill []component
	for _, name := range debianPackages {
		c, err := d.unpack(dir, name)
		if err != nil {
			return nil, err
		}
		bill = append(bill, c)
	}
	d.take("etc/libibverbs.d/*")
	for _, l := range []string{"libibverbs.so.1", "libc.so.6", "libgcc_s.so.1", loader} {
		d.library(l)
	}
	d.providers()
	if d.err != nil {
		return nil, d.err
	}
	text, err := debianBill(bill, created)
	return append(d.files, oci.File{Path: path.Join(sbomDir, "debian.spdx.json"), Mode: 0o644, Content: text}), err
}

// debian is an unpacked set of packages, and what of it an image gets.
type debian struct {
	root  string
	files []oci.File
	have  map[string]bool
	err   error
}

func (d *debian) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// unpack unpacks a package with its licence, and describes it.
func (d *debian) unpack(dir, name string) (component, error) {
	found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(found) != 1 {
		return component{}, fmt.Errorf("%s has %d packages %s, want 1; run hack/rdmavm/packages", dir, len(found), name)
	}
	if out, err := exec.Command("dpkg-deb", "-x", found[0], d.root).CombinedOutput(); err != nil {
		return component{}, fmt.Errorf("dpkg-deb -x %s: %w: %s", found[0], err, out)
	}
	if name != "libgcc-s1" { // its licence is gcc-12-base's
		d.take("usr/share/doc/" + name + "/copyright")
	}
	return describeDeb(found[0])
}

// describeDeb is the entry of a package in a bill.
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
	return component{
		ID: "SPDXRef-Package-" + name, Name: name, Version: version, Download: unknown,
		Checksums:        []checksum{{Algorithm: "SHA256", Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
		LicenseConcluded: unknown, LicenseDeclared: unknown, Copyright: unknown, Purpose: "LIBRARY",
		References: []reference{{
			Category: "PACKAGE-MANAGER", Type: "purl",
			Locator: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, url.PathEscape(version), parts[2]),
		}},
	}, nil
}

// take adds the files of a pattern.
func (d *debian) take(pattern string) {
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

// library adds a library and those that it needs. Packages have them in /lib or
// /usr/lib alike; the image has one folder, and the loader where programs say.
func (d *debian) library(name string) {
	if d.have[name] || d.err != nil {
		return
	}
	d.have[name] = true
	for _, dir := range []string{multiarch, strings.TrimPrefix(multiarch, "usr/")} {
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
	d.fail(fmt.Errorf("none of the packages %v has %s", debianPackages, name))
}

func (d *debian) needs(at string) {
	f, err := elf.Open(at)
	if err != nil {
		d.fail(err)
		return
	}
	defer f.Close()
	list, err := f.ImportedLibraries()
	if err != nil {
		d.fail(fmt.Errorf("%s: %w", at, err))
	}
	for _, l := range list {
		d.library(l)
	}
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

// debianBill says, as SPDX 2.3 in JSON, which packages an image is made of.
func debianBill(packages []component, created time.Time) ([]byte, error) {
	sums := sha256.New()
	for _, p := range packages {
		sums.Write([]byte(p.Checksums[0].Value)) // a hash never fails
	}
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: "debian",
		Namespace: fmt.Sprintf("https://outrigger.dev/spdx/debian-%x", sums.Sum(nil)),
		Creation:  creation{Created: created.Format(time.RFC3339), Creators: []string{"Organization: Outrigger", "Tool: outrigger-hack-image"}},
		Packages:  packages,
	}
	for _, p := range packages {
		doc.Relationships = append(doc.Relationships, relationship{From: documentID, Kind: "DESCRIBES", To: p.ID})
	}
	return json.MarshalIndent(doc, "", "  ")
}

// rdmaFlags are how a sidecar for RDMA is compiled: against glibc, which loads
// libibverbs for it.
func rdmaFlags() (tags string, environ []string, err error) {
	at, err := filepath.Abs(headers)
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(at, "infiniband", "verbs.h")); err != nil {
		return "", nil, fmt.Errorf("the headers of libibverbs are not here; run hack/rdmavm/packages: %w", err)
	}
	// Names are looked up by Go: the image has no files for glibc to do it with.
	return "rdma,netgo,osusergo", []string{"CGO_ENABLED=1", "CGO_CFLAGS=-O2 -I" + at}, nil
}
