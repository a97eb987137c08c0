package admission

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAccept: what passes ends nothing and is told, not three times in a moment; what does not is returned.
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
	var told []string
	conn, err := Accept(accept, func(err error) { told = append(told, err.Error()) })
	if conn != here || err != nil || len(told) != 1 || !strings.Contains(told[0], "raise the limit of open files") {
		t.Errorf("%v, %v, told %q", conn, err, told)
	}
	if _, err := Accept(accept, func(err error) { t.Errorf("told %v", err) }); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want the listener's end", err)
	}
}
