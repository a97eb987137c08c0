package admission

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestCredentials checks that the kernel reports the connected process, and an error for
// a closed connection.
func TestCredentials(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test is over
	far, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }() // the test is over
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if cred, err := Credentials(conn); err != nil || int(cred.Uid) != os.Geteuid() || int(cred.Pid) != os.Getpid() {
		t.Errorf("%+v, %v: want user %d, process %d", cred, err, os.Geteuid(), os.Getpid())
	}
	if HasData(conn) {
		t.Error("HasData is true before any data")
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the look does not consume the data
		if !HasData(conn) {
			t.Error("HasData is false although there is data")
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if HasData(conn) {
		t.Error("a closed connection has data")
	}
	if cred, err := Credentials(conn); err == nil {
		t.Errorf("a closed connection has the credentials %+v", cred)
	}
}
