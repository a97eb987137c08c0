package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// passwd and group let a program look up its user name and its home folder.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

// File is one entry of an image's file system. Its path is relative to the root; that of a
// folder ends in a slash. Parent folders need not be listed.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
	Link    string // target of a symbolic link; empty: the entry is not a link
}

// system has the files of every image: the accounts and a folder for temporary files.
var system = []File{
	{Path: "etc/passwd", Mode: 0o644, Content: []byte(passwd)},
	{Path: "etc/group", Mode: 0o644, Content: []byte(group)},
	{Path: "tmp/", Mode: 0o1777},
}

// Tar returns a tar of the files and their parent folders, sorted, owned by root and without
// times: the same files give the same bytes.
func Tar(files []File) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range withParents(files) {
		h := &tar.Header{Name: f.Path, Mode: int64(f.Mode), Size: int64(len(f.Content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
		if strings.HasSuffix(f.Path, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.Link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// withParents adds the parent folders of the files, and sorts: a folder precedes its files.
func withParents(given []File) []File {
	files := slices.Clone(given)
	known := map[string]bool{}
	for _, f := range given {
		known[f.Path] = true
	}
	for _, f := range given {
		for dir := path.Dir(strings.TrimSuffix(f.Path, "/")); dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				files = append(files, File{Path: dir + "/", Mode: 0o755})
			}
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}
