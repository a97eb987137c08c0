package dsa

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// TestAttributes checks what is read of sysfs, and what is refused.
func TestAttributes(t *testing.T) {
	root := tree(t, dsamodel.Options{Size: 16, Dedicated: true})
	want := attributes{dedicated: true, size: 16, transfer: 2 << 30, batch: 1024}
	if a, err := readAttributes(root, "wq0.0"); err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	for _, c := range []struct{ attribute, value, err string }{
		{"state", "disabled", `state is "disabled", want enabled`},
		{"type", "kernel", `type is "kernel", want user`},
		{"mode", "hidden", `mode is "hidden", want shared or dedicated`},
		{"size", "0", `size is "0", want a number of at least 1`},
		{"size", "many", `size is "many"`},
		{"max_transfer_size", "32", `max_transfer_size is "32", want a number of at least 64`},
		{"max_batch_size", "-1", `max_batch_size is "-1"`},
		{"mode", "", "mode is empty"},
	} {
		root := tree(t, dsamodel.Options{Size: 16})
		name := filepath.Join(root, "sys/bus/dsa/devices/wq0.0", c.attribute)
		if err := os.WriteFile(name, []byte(c.value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readAttributes(root, "wq0.0"); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %q: %v, want %q", c.attribute, c.value, err, c.err)
		}
	}
	if _, err := readAttributes(root, "wq0.7"); err == nil || !strings.Contains(err.Error(), "wq0.7/state") {
		t.Errorf("%v", err)
	}
}

// TestOpenRefused checks errors of Open, with their remedies.
func TestOpenRefused(t *testing.T) {
	root := tree(t, dsamodel.Options{Size: 16})
	for e, want := range map[error]string{
		unix.EBUSY: "use a shared one", unix.EACCES: "request a resource of kind dsa",
		unix.EOPNOTSUPP: "intel_iommu=on,sm_on", unix.ENXIO: "no such device",
	} {
		_, err := Open(Config{File: "/dev/dsa/wq0.0", Root: root, Open: func(string) (Queue, error) { return nil, e }})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := Open(Config{File: filepath.Join(root, "dev/dsa/wq0.1"), Root: root})
	if err == nil {
		t.Error("a queue without attributes is opened")
	}
	if _, err = Open(Config{File: "/dev/dsa/wq0.0", Root: root, Pending: pendingMax + 1}); err == nil {
		t.Error("too many pending copies")
	}
}

// failedQueue is a queue whose device has reported an error before.
type failedQueue struct{ fullQueue }

func (failedQueue) Failed() bool { return true }

// TestOpenNotesAnError checks that the reports of such a device are not used.
func TestOpenNotesAnError(t *testing.T) {
	if c := openOver(t, failedQueue{}); !c.unreliable {
		t.Error("the error is not noted")
	}
	if c := openOver(t, fullQueue{}); c.unreliable {
		t.Error("an error is noted")
	}
}

// TestFile opens a device file: here a file, of which write takes descriptors.
func TestFile(t *testing.T) {
	root := tree(t, dsamodel.Options{Size: 16})
	name := filepath.Join(root, "dev/dsa/wq0.0")
	c, err := Open(Config{File: name, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Submit(make([]byte, 4096), pattern(4096, 1), 0) {
		t.Fatal("refused")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil || len(b) != descriptorBytes || b[7] != opcodeMove {
		t.Errorf("%x, %v", b, err)
	}
}
