package mpi

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestPort checks that a rank's bytes reach the sidecar by the port, and the answer comes
// back, and that the end of one connection ends the other.
func TestPort(t *testing.T) {
	p, err := listenPort(string(sidecar(t, "cmd=initack rc=0\n")), report)
	if err != nil {
		t.Fatal(err)
	}
	env := p.variables(3)
	at, ok := strings.CutPrefix(env[0], "PMI_PORT=")
	if !ok || env[1] != "PMI_ID=3" {
		t.Fatalf("variables %q", env)
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it was only read
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, "cmd=initack pmiid=3"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if text, err := in.ReadString('\n'); text != "cmd=initack rc=0\n" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := in.ReadString('\n'); err == nil {
		t.Errorf("the sidecar has ended, and the rank hears %q", text)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		_ = c.Close() // it should not exist
		t.Error("a closed port takes connections")
	}
}

// TestPortCloses checks that a silent rank does not delay the end.
func TestPortCloses(t *testing.T) {
	p, err := listenPort("/nowhere"+names.PMISuffix, report)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestPortComplains checks that any number of failed connections writes only some lines
// into the job's output.
func TestPortComplains(t *testing.T) {
	var lines atomic.Int64
	begun := time.Now()
	p, err := listenPort("/nowhere"+names.PMISuffix, func(error) { lines.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		conn, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Read(make([]byte, 1)) // the port closes it: there is no sidecar
		_ = conn.Close()                  // no further request follows
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if n := lines.Load(); n < 1 || n > reportsFirst+int64(time.Since(begun)/time.Minute) {
		t.Errorf("%d lines for 50 connections", n)
	}
}

// TestOwner parses a table as Linux writes it.
func TestOwner(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A2F1 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 6517 1 0000000000000000 100 0 0 10 0
   1: 0100007F:CE3A 0100007F:A2F1 01 00000000:00000000 00:00000000 00000000  1001        0 6519 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:A2F1 0100007F:CE3A 01 00000000:00000000 00:00000000 00000000  1000        0 6518 1 0000000000000000 20 4 30 10 -1
   3: short
`
	port, rank := netip.MustParseAddrPort("127.0.0.1:41713"), netip.MustParseAddrPort("127.0.0.1:52794")
	if uid, ok := ownerOf(table, rank, port); !ok || uid != 1001 {
		t.Errorf("the rank's side is of %d, %v", uid, ok)
	}
	if uid, ok := ownerOf(table, port, rank); !ok || uid != 1000 {
		t.Errorf("the port's side is of %d, %v", uid, ok)
	}
	if _, ok := ownerOf(table, netip.MustParseAddrPort("127.0.0.1:1"), port); ok {
		t.Error("a connection that is not there has an owner")
	}
	if _, ok := ownerOf("", rank, port); ok {
		t.Error("an empty table has owners")
	}
}

// TestDressByPort checks that a rank gets the port and no descriptor, and that Open MPI,
// which does not use a port, gets the descriptor.
func TestDressByPort(t *testing.T) {
	p, err := listenPort("/nowhere", report)
	if err != nil {
		t.Fatal(err)
	}
	r := &Ranks{family: MPICH, dir: "/x", port: p}
	r.where.known = &position{layout: []int{4}}
	env, files, err := r.Dress(t.Context(), 3)
	if err != nil || len(files) != 0 || !slices.Contains(env, "PMI_ID=3") || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PMI_FD=") }) {
		t.Errorf("%q, %d files, %v", env, len(files), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for value, want := range map[string]bool{"": false, "fd": false, "port": true} {
		if got, err := wantsPort(MPICH, value); err != nil || got != want {
			t.Errorf("%s=%q: %v, %v", names.EnvPMI, value, got, err)
		}
	}
	if got, err := wantsPort(OpenMPI, "port"); err != nil || got {
		t.Errorf("Open MPI: %v, %v", got, err)
	}
	if _, err := wantsPort(MPICH, "pipe"); err == nil || !strings.Contains(err.Error(), "want fd or port") {
		t.Errorf("a misspelt way: %v", err)
	}
}
