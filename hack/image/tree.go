package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// stockDebs is the folder in which hack/mpi/packages stores the packages of an image of others'
// programs.
const stockDebs = "bin/mpi/debs"

// needless are the folders of packages that no program reads. The licences' texts
// are among them: the image is for tests, and is not distributed.
var needless = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/info"}

// alternatives are links that packages make when they are installed.
var alternatives = []oci.File{
	{Path: multiarch + "/libblas.so.3", Link: "blas/libblas.so.3"},
	{Path: multiarch + "/libpsm_infinipath.so.1", Link: "../libpsm1/libpsm_infinipath.so.1.16"},
}

// stockFiles returns all files of all packages in dir, as in a Debian system whose packages have
// been unpacked but not configured, and the bill of materials of the packages.
func stockFiles(dir string, created time.Time) ([]oci.File, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("%s has no packages; run hack/mpi/packages", dir)
	}
	root, err := os.MkdirTemp("", "outrigger-stock-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	var bill []component
	for _, deb := range found {
		c, err := unpackDeb(deb, root)
		if err != nil {
			return nil, err
		}
		bill = append(bill, c)
	}
	files, err := tree(root)
	if err != nil {
		return nil, err
	}
	text, err := packageBill("debian", bill, created)
	return append(append(files, alternatives...), oci.File{Path: path.Join(sbomDir, "debian.spdx.json"), Mode: 0o644, Content: text}), err
}

// tree returns the files below root, without those that no program reads.
func tree(root string) ([]oci.File, error) {
	var files []oci.File
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if slices.Contains(needless, name) {
				return filepath.SkipDir
			}
			return nil // withParents adds the folders that are not empty
		}
		f, err := fileAt(at, name)
		files = append(files, f)
		return err
	})
	return files, err
}

func fileAt(at, name string) (oci.File, error) {
	info, err := os.Lstat(at)
	if err != nil {
		return oci.File{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(at)
		return oci.File{Path: name, Link: to}, err
	}
	content, err := os.ReadFile(at)
	// Programs in an image run as the user who starts them, so that setuid bits are not needed.
	return oci.File{Path: name, Mode: info.Mode().Perm(), Content: content}, err
}
