package uverbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoDevice: whatever is no RDMA device is told by name, and nothing is registered.
// What a device answers is tested in virtual machines (e2e/rdmavm).
func TestNoDevice(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Driver(int(f.Fd())); !errors.Is(err, ErrDriver) || !errors.Is(err, unix.ENOTTY) {
		t.Errorf("its driver: %v", err)
	}
	if _, err := Register(int(f.Fd()), 1, 14, make([]byte, 4096)); !errors.Is(err, ErrDriver) {
		t.Errorf("registering with it: %v", err)
	}
	if _, err := Register(int(f.Fd()), 1, 14, nil); err == nil || errors.Is(err, ErrDriver) {
		t.Errorf("registering nothing: %v", err)
	}
	if err := Deregister(int(f.Fd()), 14, Registration{Handle: 3}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("ending a registration of it: %v", err)
	}
}

// TestExplain: a refusal says what it means, and of the limit of locked memory how much
// that is.
func TestExplain(t *testing.T) {
	for cause, want := range map[error]struct {
		err  error
		text string
	}{
		unix.ENOMEM:     {ErrMemlock, "registering 4096 bytes, and RLIMIT_MEMLOCK (ulimit -l) of this process is"},
		unix.EAGAIN:     {ErrMemlock, "raise it"},
		unix.EINVAL:     {ErrDriver, "driver 14"},
		unix.EOPNOTSUPP: {ErrDriver, "driver 14"},
		unix.EIO:        {unix.EIO, "4096 bytes"},
	} {
		err := explain(cause, 4096, 14)
		if !errors.Is(err, want.err) || !errors.Is(err, cause) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%v becomes %v", cause, err)
		}
	}
}
