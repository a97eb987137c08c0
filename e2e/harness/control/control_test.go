package control_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger-hpc/outrigger/e2e/harness/control"
)

// Clerk answers requests.
type Clerk struct{}

// Double doubles.
func (*Clerk) Double(n int, answer *int) error {
	if n < 0 {
		return errors.New("only what is there is doubled")
	}
	*answer = 2 * n
	return nil
}

func TestControl(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "clerk.sock")
	if _, err := control.Pid(socket); err == nil {
		t.Error("a process listens before the first one does")
	}
	listener, err := control.Serve(socket, &Clerk{})
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := control.Pid(socket); err != nil || pid != os.Getpid() {
		t.Errorf("process %d listens (%v), want %d", pid, err, os.Getpid())
	}
	var got int
	if err := control.Ask(socket, "Clerk.Double", 21, &got); err != nil || got != 42 {
		t.Errorf("twice 21 is %d (%v)", got, err)
	}
	if err := control.Ask(socket, "Clerk.Double", -1, &got); err == nil || err.Error() != "only what is there is doubled" {
		t.Errorf("the clerk's refusal arrives as %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := control.Ask(socket, "Clerk.Double", 1, &got); err == nil {
		t.Error("no process listens, and a request is answered")
	}
}
