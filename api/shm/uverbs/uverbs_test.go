package uverbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoDevice: the error for a file that is not an RDMA device names it, and nothing is
// registered. Virtual machines test the answers of a device (e2e/rdmavm).
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

// TestExplain: an error explains the refusal, and, for the limit of locked memory, has the
// limit.
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
