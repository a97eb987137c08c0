package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/outrigger-hpc/outrigger/api/image"
)

// stockWheels is the folder in which hack/mpi/wheels stores PyPI's packages.
const stockWheels = "bin/mpi/wheels"

// wheel is a package of PyPI, and the files of it that an image gets.
type wheel struct {
	name  string   // name of the package, as in its file name
	to    string   // folder in the image that stands for the prefix of the package
	files []string // patterns of files below the prefix
}

// unpack returns the files of the package that the image gets, and the package's entry in a bill
// of materials. Installing a wheel copies the files below NAME-VERSION.data/data to the prefix
// (PyPA, "Binary distribution format").
func (w *wheel) unpack(dir string) ([]oci.File, component, error) {
	name, err := single(filepath.Join(dir, w.name+"-*.whl"))
	if err != nil {
		return nil, component{}, err
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, component{}, err
	}
	packed, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, component{}, fmt.Errorf("%s: %w", name, err)
	}
	version := strings.Split(filepath.Base(name), "-")[1]
	files, err := w.filesBelow(packed.File, w.name+"-"+version+".data/data/")
	if err != nil {
		return nil, component{}, fmt.Errorf("%s: %w", name, err)
	}
	pypi := strings.ReplaceAll(w.name, "_", "-")
	return files, packaged(pypi, version, "pkg:pypi/"+pypi+"@"+version, content), nil
}

// filesBelow returns the files below the prefix that match a pattern. Each pattern must match a file.
func (w *wheel) filesBelow(packed []*zip.File, prefix string) ([]oci.File, error) {
	var files []oci.File
	named := map[string]bool{}
	for _, f := range packed {
		name, below := strings.CutPrefix(f.Name, prefix)
		wanted := slices.IndexFunc(w.files, func(p string) bool {
			match, err := path.Match(p, name)
			return err == nil && match
		})
		if !below || wanted < 0 || f.Mode().IsDir() {
			continue
		}
		named[w.files[wanted]] = true
		content, err := read(f)
		if err != nil {
			return nil, err
		}
		files = append(files, oci.File{Path: path.Join(w.to, name), Mode: f.Mode().Perm(), Content: content})
	}
	for _, p := range w.files {
		if !named[p] {
			return nil, fmt.Errorf("it has no %s", p)
		}
	}
	return files, nil
}

func read(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}
