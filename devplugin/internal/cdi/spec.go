// Package cdi writes Container Device Interface files, by which a container
// runtime adds device files itself (CNCF, Container Device Interface
// Specification 0.5.0). One file describes one resource.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// version is the oldest that has hostPath in a device node.
const version = "0.5.0"

type spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
}

type device struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type edits struct {
	Nodes []node `json:"deviceNodes"`
}

type node struct {
	Path        string `json:"path"`
	HostPath    string `json:"hostPath,omitempty"`
	Permissions string `json:"permissions"`
}

// Name is the qualified name of a device. The kind is the resource's name:
// both have the form domain/name.
func Name(resource, device string) string { return resource + "=" + device }

// Directory is a directory of CDI files that the container runtime reads, such
// as /var/run/cdi.
type Directory struct {
	Path string
	// HostDev is where the runtime finds device files; the default is /dev.
	HostDev string
}

// file is the place of a resource's description. The name says whose it is, so
// that a restarted plugin writes over its own.
func (d *Directory) file(resource string) string {
	return filepath.Join(d.Path, strings.ReplaceAll(resource, "/", "-")+".json")
}

// Write describes the devices of a resource: their files, relative to /dev, by
// their IDs. A resource without devices has no file, because a description
// without devices is not valid. Readers see the old description or the new
// one, never a part.
func (d *Directory) Write(resource string, files map[string][]string) error {
	if len(files) == 0 {
		return d.Remove(resource)
	}
	s := spec{Version: version, Kind: resource}
	for _, id := range slices.Sorted(maps.Keys(files)) {
		s.Devices = append(s.Devices, device{Name: id, Edits: edits{Nodes: d.nodes(files[id])}})
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("describing %s: %w", resource, err)
	}
	if old, err := os.ReadFile(d.file(resource)); err == nil && bytes.Equal(old, text) {
		return nil // an unchanged file need not be read again
	}
	return replace(d.file(resource), text)
}

func (d *Directory) nodes(files []string) []node {
	nodes := make([]node, len(files))
	for i, f := range files {
		nodes[i] = node{Path: filepath.Join("/dev", f), Permissions: "rw"}
		if d.HostDev != "" && d.HostDev != "/dev" {
			nodes[i].HostPath = filepath.Join(d.HostDev, f)
		}
	}
	return nodes
}

// Remove takes the description of a resource away.
func (d *Directory) Remove(resource string) error {
	if err := os.Remove(d.file(resource)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// replace writes a file of which nobody sees a half. The temporary file has no
// .json at its end: runtimes read every file that has.
func replace(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
