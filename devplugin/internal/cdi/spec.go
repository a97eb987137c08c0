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
	"regexp"
	"slices"
	"strings"
)

// version is the oldest version with hostPath in a device node.
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

// Name returns the qualified name of a device. The kind is the resource's name:
// both have the form domain/name.
func Name(resource, device string) string { return resource + "=" + device }

// The names of a domain and a class begin with a letter. The name of a device has punctuation
// only between letters and digits. A runtime rejects a description with another name, and then
// finds none of its devices. All other resource names that Kubernetes allows are valid in CDI
// too.
var (
	kindName   = regexp.MustCompile(`^[A-Za-z][^/]*/[A-Za-z][^/]*$`)
	deviceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)
)

// fileMax bounds the name of a file, to which replace adds a suffix (Linux allows 255 bytes).
const fileMax = 240

// Check returns an error if a resource cannot have a description because of its name.
func Check(resource string) error {
	if !kindName.MatchString(resource) {
		return fmt.Errorf("resource %s: CDI wants a letter at the beginning of both parts of the name; give it another name, or let the kubelet add the files (--injection=kubelet)", resource)
	}
	if n := len((&Directory{}).file(resource)); n > fileMax {
		return fmt.Errorf("resource %s: the name of its CDI file would have %d bytes, at most %d; give it a shorter name, or let the kubelet add the files (--injection=kubelet)", resource, n, fileMax)
	}
	return nil
}

// Directory is a directory of CDI files that the container runtime reads, such
// as /var/run/cdi.
type Directory struct {
	Path string
	// HostDev is where the runtime finds device files; the default is /dev.
	HostDev string
}

// file returns the path of a resource's description. The name contains the resource, so that a
// restarted plugin overwrites its own file.
func (d *Directory) file(resource string) string {
	return filepath.Join(d.Path, strings.ReplaceAll(resource, "/", "-")+".json")
}

// Write describes the devices of a resource: their files, relative to /dev, by device ID. A
// resource without devices has no file, because a description without devices is not valid.
// Readers see either the old or the new description, never a part. A device whose name is not
// valid in CDI is left out, and the error reports it.
func (d *Directory) Write(resource string, files map[string][]string) error {
	s := spec{Version: version, Kind: resource}
	var odd error
	for _, id := range slices.Sorted(maps.Keys(files)) {
		if !deviceName.MatchString(id) {
			odd = errors.Join(odd, fmt.Errorf("CDI cannot have a device of the name %q: rename it, or leave it out of the pool", id))
			continue
		}
		s.Devices = append(s.Devices, device{Name: id, Edits: edits{Nodes: d.nodes(files[id])}})
	}
	if len(s.Devices) == 0 {
		return errors.Join(odd, d.Remove(resource))
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("describing %s: %w", resource, err)
	}
	if old, err := os.ReadFile(d.file(resource)); err == nil && bytes.Equal(old, text) {
		return odd // runtimes do not have to read an unchanged file again
	}
	return errors.Join(odd, replace(d.file(resource), text))
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

// Remove deletes the description of a resource.
func (d *Directory) Remove(resource string) error {
	if err := os.Remove(d.file(resource)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// replace writes a file atomically. The name of the temporary file does not end in
// .json, because runtimes read every file with that suffix.
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
