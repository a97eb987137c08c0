// Package sysfstest builds fake sys and dev directories for tests: the files that the device
// plugin reads, with the contents and the symbolic links of the kernel.
package sysfstest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Tree is a directory that looks like a node's root to the device plugin. It is
// on disk, so that a real program can be pointed at it.
type Tree struct {
	Root string
	t    testing.TB
}

// New returns an empty tree: a node whose drivers have not been loaded.
func New(t testing.TB) *Tree {
	t.Helper()
	tree := &Tree{Root: t.TempDir(), t: t}
	tree.mkdir("sys")
	tree.mkdir("dev")
	return tree
}

// FS returns the tree as the inventory reads it.
func (tree *Tree) FS() fs.FS { return os.DirFS(tree.Root) }

// Set writes a file, and creates its directories.
func (tree *Tree) Set(name, content string) {
	tree.t.Helper()
	tree.mkdir(path.Dir(name))
	tree.must(os.WriteFile(tree.path(name), []byte(content), 0o600))
}

// SetAll writes "name = value" lines below a directory, each value with the
// line end that the kernel gives it.
func (tree *Tree) SetAll(dir, lines string) {
	tree.t.Helper()
	for line := range strings.Lines(lines) {
		name, value, found := strings.Cut(line, " = ")
		if found {
			tree.Set(path.Join(dir, strings.TrimSpace(name)), strings.TrimSpace(value)+"\n")
		}
	}
}

// Link makes name a symbolic link to target as the kernel does: up to the nearest directory
// strictly above the target, then down, so that the link always ends with the name of the
// target (Linux, kernfs_get_target_path).
func (tree *Tree) Link(name, target string) {
	tree.t.Helper()
	tree.mkdir(path.Dir(name))
	above, up := path.Dir(name), ""
	for !strings.HasPrefix(path.Dir(target)+"/", above+"/") {
		above, up = path.Dir(above), up+"../"
	}
	tree.must(os.Symlink(up+strings.TrimPrefix(target, above+"/"), tree.path(name)))
}

// Remove removes a file, or a directory with its contents.
func (tree *Tree) Remove(name string) {
	tree.t.Helper()
	tree.must(os.RemoveAll(tree.path(name)))
}

// Device makes a device file. It is a plain file, since the inventory checks only whether it
// exists.
func (tree *Tree) Device(name string) {
	tree.t.Helper()
	tree.Remove(path.Join("dev", name)) // a test may have put a real device there
	tree.Set(path.Join("dev", name), "")
}

func (tree *Tree) path(name string) string { return filepath.Join(tree.Root, filepath.FromSlash(name)) }

func (tree *Tree) mkdir(name string) {
	tree.t.Helper()
	tree.must(os.MkdirAll(tree.path(name), 0o700))
}

func (tree *Tree) must(err error) {
	tree.t.Helper()
	if err != nil {
		tree.t.Fatalf("building a fake sysfs: %v", err)
	}
}

// Function is a PCI function.
type Function struct {
	Address, Vendor, Product, Driver string
	NUMA                             int
	// Group is the IOMMU group; -1 for none.
	Group int
}

// dir returns the directory of the function's attributes.
func (f Function) dir() string {
	domain, rest, _ := strings.Cut(f.Address, ":")
	bus, _, _ := strings.Cut(rest, ":")
	return path.Join("sys/devices", "pci"+domain+":"+bus, f.Address)
}

// PCI adds a function.
func (tree *Tree) PCI(f Function) {
	tree.t.Helper()
	tree.SetAll(f.dir(), fmt.Sprintf("vendor = 0x%s\ndevice = 0x%s\nnuma_node = %d\n", f.Vendor, f.Product, f.NUMA))
	tree.Link(path.Join("sys/bus/pci/devices", f.Address), f.dir())
	if f.Group >= 0 {
		group := path.Join("sys/kernel/iommu_groups", fmt.Sprint(f.Group))
		tree.Link(path.Join(group, "devices", f.Address), f.dir())
		tree.Link(path.Join(f.dir(), "iommu_group"), group)
	}
	tree.Bind(f, f.Driver)
}

// Bind binds a function to another driver; "" unbinds it.
func (tree *Tree) Bind(f Function, driver string) {
	tree.t.Helper()
	tree.Remove(path.Join(f.dir(), "driver"))
	if driver != "" {
		dir := path.Join("sys/bus/pci/drivers", driver)
		tree.mkdir(dir)
		tree.Link(path.Join(f.dir(), "driver"), dir)
	}
}
