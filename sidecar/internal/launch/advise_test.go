package launch

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAdvice: a limit of which a process could not be started is said with what raises
// it; the same number of a lock is none.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "fork/exec", Path: "x", Err: unix.EMFILE}, "raise the limit of open files (ulimit -n)"},
		{&os.PathError{Op: "fork/exec", Path: "x", Err: unix.EAGAIN}, "raise the limit of processes (ulimit -u, or the container's)"},
		{&os.PathError{Op: "flock", Path: "x", Err: unix.EAGAIN}, ""},
		{unix.EAGAIN, ""},
	} {
		wrapped := fmt.Errorf("starting: %w", c.err)
		if got := Advise(wrapped); !errors.Is(got, c.err) || !strings.HasSuffix(got.Error(), c.want) || c.want == "" && got.Error() != wrapped.Error() {
			t.Errorf("%v, want %q", got, c.want)
		}
	}
	if err := Advise(nil); err != nil {
		t.Error(err)
	}
}
