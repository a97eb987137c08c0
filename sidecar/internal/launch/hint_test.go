package launch

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHintOfFullSharedMemory checks that SIGBUS with a full file system is reported with
// the size and a remedy, and that another signal, or a file system with free space, is not.
func TestHintOfFullSharedMemory(t *testing.T) {
	if text := full("/dev/shm", 64<<20, 100<<10); !strings.HasPrefix(text, "/dev/shm is full (100 KiB of 64 MiB are free)") || !strings.Contains(text, "memory.shm") {
		t.Errorf("a full one: %q", text)
	}
	for _, c := range [][2]uint64{{64 << 20, 2 << 20}, {64 << 30, 2 << 30}} {
		if text := full("/dev/shm", c[0], c[1]); text != "" {
			t.Errorf("%d of %d bytes are free: %q", c[1], c[0], text)
		}
	}
	if text := hint(syscall.SIGSEGV, "/proc") + hint(unix.SIGBUS, filepath.Join(t.TempDir(), "none")); text != "" {
		t.Errorf("another signal, and no file system: %q", text)
	}
	if text := hint(unix.SIGBUS, "/proc"); text == "" { // its size is 0
		t.Error("SIGBUS with a full file system has no hint")
	}
}
