package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// uid is who programs run as: nobody in particular, and not root.
const uid = 65532

// accounts let a program find its own name and its home folder.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

const (
	programsDir = "usr/local/bin"
	sbomDir     = "usr/share/sbom"
)

// file is one entry of a layer. Its path is relative to the root; a folder's
// ends in a slash.
type file struct {
	path    string
	mode    fs.FileMode
	content []byte
	link    string // where a symbolic link leads; empty: it is none
}

// layer is the file system of an image: its programs, what each is made of, what
// they load, the accounts and a folder for temporary files.
func layer(programs []string, system []file, created time.Time) ([]byte, error) {
	files := append(slices.Clone(system), []file{
		{path: "etc/passwd", mode: 0o644, content: []byte(passwd)},
		{path: "etc/group", mode: 0o644, content: []byte(group)},
		{path: "tmp/", mode: 0o1777},
	}...)
	for _, name := range programs {
		program, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := filepath.Base(name)
		bill, err := billOfMaterials(base, program, created)
		if err != nil {
			return nil, fmt.Errorf("bill of materials of %s: %w", base, err)
		}
		files = append(files,
			file{path: path.Join(programsDir, base), mode: 0o755, content: program},
			file{path: path.Join(sbomDir, base+".spdx.json"), mode: 0o644, content: bill})
	}
	return archive(withParents(files))
}

// withParents adds the folders that files are in and sorts: a folder comes
// before what is in it.
func withParents(files []file) []file {
	known := map[string]bool{}
	for _, f := range files {
		known[f.path] = true
	}
	for _, f := range slices.Clone(files) {
		for dir := path.Dir(strings.TrimSuffix(f.path, "/")); dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				files = append(files, file{path: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files
}

// archive writes files as root's, without times.
func archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: int64(f.mode), Size: int64(len(f.content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return out.Bytes(), nil
}
