package admission

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestPeer: the kernel says who has connected; of a connection that is over, nobody.
func TestPeer(t *testing.T) {
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
	if who, err := Peer(conn); err != nil || int(who.Uid) != os.Geteuid() || int(who.Pid) != os.Getpid() {
		t.Errorf("%+v, %v: want user %d, process %d", who, err, os.Geteuid(), os.Getpid())
	}
	if Said(conn) {
		t.Error("a connection has said something that has not")
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // looking takes nothing away
		if !Said(conn) {
			t.Error("what a connection has said is not seen")
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if Said(conn) {
		t.Error("a closed connection says something")
	}
	if who, err := Peer(conn); err == nil {
		t.Errorf("a closed connection is of %+v", who)
	}
}
