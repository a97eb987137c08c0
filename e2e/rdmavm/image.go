package rdmavm

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// image has the paths of the kernel and the initramfs with which a machine starts.
type image struct{ kernel, initrd string }

// library is the directory of Debian's libraries.
const library = "usr/lib/x86_64-linux-gnu"

// programs are the programs of the guest, in addition to those of a test.
var programs = []string{
	"usr/bin/ib_write_lat", "usr/bin/ib_write_bw", "usr/bin/ib_read_lat", "usr/bin/rping", "usr/bin/ibv_devinfo", "bin/ip", "sbin/tc", "usr/bin/rdma",
}

// modules are the kernel modules of the guest. The modules on which they depend are added, and
// loaded before them. rxe requests crc32 from the crypto interface by name, which is not
// among the dependencies of a module.
var modules = []string{
	"virtio_pci", "9pnet_virtio", "9p", "virtio_net", "veth", "crc32_generic", "crc32_pclmul", "crc32c_generic", "crc32c_intel",
	"ib_uverbs", "rdma_ucm", "rdma_rxe", "sch_netem",
}

// Sets of modules that a run may add (Run.Modules). A set is loaded in its order.
const (
	ModulesIOAT  = "ioat" // Linux's driver of I/OAT
	ModulesVFIO  = "vfio"
	ModulesShape = "shape" // networks between namespaces, and what makes them slow
)

var sets = map[string][]string{
	ModulesIOAT:  {"ioatdma"},
	ModulesVFIO:  {"vfio_iommu_type1", "vfio_pci"},
	ModulesShape: {"bridge", "macvlan", "sch_tbf"},
}

// build makes the image from the packages that hack/rdmavm/packages has unpacked, unless the
// image exists already. dir is bin/rdmavm of the repository.
func build(dir string) (image, error) {
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return image{}, err
	}
	defer unlock()
	stamp, err := os.ReadFile(filepath.Join(dir, "stamp"))
	if err != nil {
		return image{}, fmt.Errorf("the guest's packages are not here; run hack/rdmavm/packages: %w", err)
	}
	first := filepath.Join(dir, "init")
	if err := compile(first, "../../hack/rdmavm/init", nil, "CGO_ENABLED=0"); err != nil {
		return image{}, err
	}
	program, err := os.ReadFile(first)
	if err != nil {
		return image{}, err
	}
	sum := sha256.Sum256(slices.Concat(stamp, program, []byte(strings.Join(slices.Concat(programs, modules), " ")), fmt.Append(nil, sets)))
	name := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:6]))
	img := image{kernel: filepath.Join(dir, "vmlinux"), initrd: name + ".cpio"}
	if _, err := os.Stat(img.initrd); err == nil {
		return img, nil
	}
	root := filepath.Join(dir, "root")
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return image{}, fmt.Errorf("%s/boot has %d kernels, want 1; remove %s/stamp and run hack/rdmavm/packages", root, len(kernels), dir)
	}
	if err := replace(img.kernel, func(w io.Writer) error { return extractKernel(kernels[0], w) }); err != nil {
		return image{}, err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "guest-*.cpio")) // Glob fails only for an invalid pattern, and this one is valid
	for _, o := range old {
		_ = os.Remove(o) // an error is harmless: the old file only takes disk space
	}
	return img, replace(img.initrd, func(w io.Writer) error { return writeGuest(w, root, first) })
}

func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("run hack/rdmavm/packages first: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}

// headers is the path of the headers of libibverbs, below the folder of the packages.
const headers = "root/usr/include"

// Compile builds the program in a folder with tags, or the tests of the folder if out ends in
// .test. With the tag rdma, the program is linked to glibc, and compiled with the headers of
// the guest's libibverbs.
func Compile(out, pkg string, tags ...string) error {
	if !slices.Contains(tags, "rdma") {
		return compile(out, pkg, tags, "CGO_ENABLED=0")
	}
	root, err := repository()
	if err != nil {
		return err
	}
	tags = append(tags, "netgo", "osusergo") // the guest does not have the files that glibc needs to look up names
	return compile(out, pkg, tags, "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -I"+filepath.Join(root, "bin", "rdmavm", headers))
}

// sidecarProfile is the profile with which the compiler optimizes the sidecar (hack/pgo).
const sidecarProfile = "sidecar/cmd/outrigger-sidecar/default.pgo"

func compile(out, pkg string, tags []string, env ...string) error {
	args := []string{"build", "-o", out, "-tags", strings.Join(tags, ","), pkg}
	if strings.HasSuffix(out, ".test") {
		root, err := repository()
		if err != nil {
			return err
		}
		args[0] = "test"
		args = slices.Insert(args, 1, "-c", "-pgo="+filepath.Join(root, sidecarProfile))
	}
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), env...)
	if said, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

// writeGuest writes the initramfs.
func writeGuest(w io.Writer, root, first string) error {
	g := &guest{archive: newArchive(w), root: root, have: map[string]bool{}}
	for _, d := range []string{"usr/bin", "usr/lib64", library} {
		g.dir(d)
	}
	for _, d := range []string{"bin", "lib", "lib64"} {
		g.link(d, "usr/"+d)
	}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "host", "root", "var/run"} {
		g.dir(d)
	}
	g.file("init", first)
	g.bytes("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	g.bytes("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"))
	for _, p := range programs {
		g.program(p)
	}
	g.library("libgcc_s.so.1") // glibc loads this library when a thread ends
	g.library("libibverbs.so.1")
	g.program(library + "/libibverbs/librxe-rdmav34.so")
	g.bytes("etc/libibverbs.d/rxe.driver", 0o644, []byte("driver rxe\n"))
	g.modules()
	return g.close()
}

// guest is an initramfs made of the packages below root.
type guest struct {
	*archive
	root string
	have map[string]bool // paths of the libraries and modules that have been added
	list []string        // modules of the present list, in the order of loading
}

// find returns the path of a file of the packages, which may be in /lib or in /usr/lib.
func (g *guest) find(name string) string {
	for _, n := range []string{name, strings.TrimPrefix(name, "usr/"), "usr/" + name} {
		if at, err := filepath.EvalSymlinks(filepath.Join(g.root, n)); err == nil {
			return at
		}
	}
	if g.err == nil {
		g.err = fmt.Errorf("no package has %s; hack/rdmavm/packages lists them", name)
	}
	return os.DevNull
}

// program adds a program or a provider of libibverbs, with its libraries.
func (g *guest) program(name string) {
	at := g.find(name)
	if strings.HasPrefix(name, library) {
		g.file(name, at)
	} else {
		g.file("usr/bin/"+filepath.Base(name), at)
	}
	g.needs(at)
}

func (g *guest) needs(at string) {
	if at == os.DevNull {
		return
	}
	f, err := elf.Open(at)
	if err != nil {
		if g.err == nil {
			g.err = err
		}
		return
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil && g.err == nil {
		g.err = fmt.Errorf("%s: %w", at, err)
	}
	for _, l := range libraries {
		g.library(l)
	}
}

func (g *guest) library(name string) {
	if g.have[name] {
		return
	}
	g.have[name] = true
	to := library + "/" + name
	if strings.HasPrefix(name, "ld-linux") {
		to = "usr/lib64/" + name
	}
	at := g.find(library + "/" + name)
	g.file(to, at)
	g.needs(at)
}

// modules adds the kernel's modules, and for init a list of them and one of each set.
func (g *guest) modules() {
	where := map[string]string{}
	err := filepath.WalkDir(filepath.Join(g.root, "lib", "modules"), func(p string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(p), ".ko"); ok {
			where[strings.ReplaceAll(name, "-", "_")] = p
		}
		return err
	})
	if err != nil && g.err == nil {
		g.err = err
	}
	add := func(name string, modules []string) {
		for g.list = nil; len(modules) > 0; modules = modules[1:] {
			g.module(modules[0], where)
		}
		g.bytes("modules/"+name, 0o644, []byte(strings.Join(g.list, "\n")))
	}
	add("list", modules)
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		add(name, sets[name])
	}
}

func (g *guest) module(name string, where map[string]string) {
	if name = strings.ReplaceAll(name, "-", "_"); g.have["module "+name] || g.err != nil {
		return
	}
	g.have["module "+name] = true
	at := where[name]
	f, err := elf.Open(at)
	if err != nil {
		g.err = fmt.Errorf("module %s: %w", name, err)
		return
	}
	defer f.Close()
	info, err := f.Section(".modinfo").Data()
	if err != nil {
		g.err = fmt.Errorf("module %s: %w", name, err)
		return
	}
	for _, line := range strings.Split(string(info), "\x00") {
		if needs, ok := strings.CutPrefix(line, "depends="); ok && needs != "" {
			for _, n := range strings.Split(needs, ",") {
				g.module(n, where)
			}
		}
	}
	g.file("modules/"+name+".ko", at)
	g.list = append(g.list, name)
}
