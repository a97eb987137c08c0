package admission

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAccept checks that temporary errors are reported, at most once a second, and do not
// end Accept, and that other errors are returned.
func TestAccept(t *testing.T) {
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }() // nothing was written
	answers := []error{&net.OpError{Op: "accept", Err: unix.EMFILE}, unix.ECONNABORTED, unix.ENOMEM, nil, net.ErrClosed}
	accept := func() (net.Conn, error) {
		err := answers[0]
		answers = answers[1:]
		if err != nil {
			return nil, err
		}
		return here, nil
	}
	var warnings []string
	conn, err := Accept(accept, func(err error) { warnings = append(warnings, err.Error()) })
	if conn != here || err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "raise the limit of open files") {
		t.Errorf("%v, %v, warnings %q", conn, err, warnings)
	}
	if _, err := Accept(accept, func(err error) { t.Errorf("warning %v", err) }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want the listener's end", err)
	}
}
