package inventory

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
)

// FuzzScan: for any content of sysfs, a scan ends, its result is sorted and bounded, and it
// contains no file outside of the allowed directories.
func FuzzScan(f *testing.F) {
	n := sysfstest.NewNode(f)
	files := []string{
		"sys/class/infiniband/mlx5_0/ports/1/state", "sys/class/infiniband/mlx5_0/ports/1/gids/0", "sys/class/infiniband_verbs/uverbs0/ibdev",
		"sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", "sys/bus/pci/devices/0000:00:04.0/device", "sys/bus/dsa/devices/wq0.0/size",
		"sys/bus/dsa/devices/wq0.0/max_transfer_size", "sys/bus/pci/devices/0000:00:04.0/numa_node",
	}
	for i, name := range files {
		content, err := fs.ReadFile(n.FS(), name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, string(content), uint8(i))
	}
	f.Add("sys/bus/pci/devices/0000:00:04.0/iommu_group", "../../../../..", uint8(1))
	f.Add("sys/class/infiniband/mlx5_0", "mlx5_0", uint8(1))
	f.Add("sys/class/infiniband_verbs/uverbs../ibdev", "mlx5_0", uint8(0))
	f.Add("sys/class/infiniband/mlx5_0/ports/999/state", "4: ACTIVE", uint8(0))
	base := memory(f, n.FS())
	f.Fuzz(func(t *testing.T, name, content string, how uint8) {
		tree := fstest.MapFS{}
		for k, v := range base {
			tree[k] = v
		}
		file := &fstest.MapFile{Data: []byte(content)}
		if how%2 == 1 && !strings.HasPrefix(content, "/") {
			file.Mode = fs.ModeSymlink
			if loops(name, content) {
				return // the file system of this test does not detect loops; the kernel does
			}
		}
		tree[name] = file
		check(t, Scan(tree))
	})
}

// loops reports whether a link may lead to itself. Only a link from the root down into the
// real tree cannot.
func loops(name, target string) bool {
	return !strings.HasPrefix(target, strings.Repeat("../", strings.Count(name, "/"))+"sys/devices/")
}

func check(t *testing.T, r Report) {
	t.Helper()
	if len(r.Warnings) > warningsMax {
		t.Errorf("%d warnings", len(r.Warnings))
	}
	if !slices.IsSortedFunc(r.Devices, func(a, b Device) int {
		if a.Kind != b.Kind {
			return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind)
		}
		return naturally(a.ID, b.ID)
	}) {
		t.Error("the devices are not sorted")
	}
	for _, d := range r.Devices {
		if d.ID == "" || d.NUMA < NoNUMA {
			t.Errorf("device %+v", d)
		}
		for _, f := range d.Files {
			dir, name, _ := strings.Cut(f, "/")
			if !slices.Contains([]string{"infiniband", "vfio", "dsa"}, dir) || name == "" || strings.ContainsAny(name, "/\x00") || strings.Contains(name, "..") {
				t.Errorf("device %s has the file %q", d.ID, f)
			}
		}
	}
}

// memory copies a tree into memory, and symbolic links as links.
func memory(f *testing.F, tree fs.FS) fstest.MapFS {
	m := fstest.MapFS{}
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type() == fs.ModeSymlink {
			target, err := fs.ReadLink(tree, name)
			m[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
			return err
		}
		data, err := fs.ReadFile(tree, name)
		m[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	if got := len(Scan(m).Devices); got != 4+8+4 {
		f.Fatalf("the copy of the tree has %d devices", got)
	}
	return m
}
