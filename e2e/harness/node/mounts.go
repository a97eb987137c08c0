package node

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// furnish makes the node's mount namespace look like a machine of its own. The
// machine's file system stays underneath, for programs and libraries; what a
// node writes goes to mounts that end with the namespace.
func furnish(s *Spec) error {
	// /sys shows the network devices of the namespace in which it is mounted.
	if err := mount("sysfs", "/sys", 0, ""); err != nil {
		return err
	}
	if err := mountCgroups(); err != nil {
		return err
	}
	for _, at := range []string{"/run", "/var/lib"} {
		if err := mount("tmpfs", at, unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{"kubelet": "/var/lib/kubelet", "log": "/var/log"} {
		if err := bind(s.Path(from), to); err != nil {
			return err
		}
	}
	if err := ownDevices(); err != nil {
		return err
	}
	if err := pinSettings(); err != nil {
		return err
	}
	// Containers may request mounts that propagate to the node and back.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

func mount(kind, at string, flags uintptr, options string) error {
	if err := unix.Mount(kind, at, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

func bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	return nil
}

// device is a character device that every machine has (the kernel's
// Documentation/admin-guide/devices.txt).
type device struct {
	name         string
	major, minor uint32
}

var devices = []device{
	{"null", 1, 3},
	{"zero", 1, 5},
	{"full", 1, 7},
	{"random", 1, 8},
	{"urandom", 1, 9},
	{"kmsg", 1, 11},
	{"tty", 5, 0},
	{"fuse", 10, 229},
}

// ownDevices gives the node a /dev of its own, so that a test can add a device
// file to one node only.
func ownDevices() error {
	if err := mount("tmpfs", "/dev", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, d := range devices {
		name := filepath.Join("/dev", d.name)
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		if err := os.Chmod(name, 0o666); err != nil { // whatever the umask left
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	for at, kind := range map[string]string{"/dev/pts": "devpts", "/dev/shm": "tmpfs", "/dev/mqueue": "mqueue"} {
		if err := os.Mkdir(at, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
		options := map[string]string{"devpts": "newinstance,ptmxmode=0666,mode=620", "tmpfs": "mode=1777"}[kind]
		if err := mount(kind, at, unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"/dev/ptmx": "pts/ptmx", "/dev/fd": "/proc/self/fd",
		"/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, name); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// settings are kernel settings that the kubelet insists on and would write.
// They are the whole machine's, so the node is shown files that have them.
var settings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func pinSettings() error {
	dir := "/run/settings"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	for name, value := range settings {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("kernel setting %s: %w", name, err)
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("kernel setting %s: %w", name, err)
		}
	}
	return nil
}
