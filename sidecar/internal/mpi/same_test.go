package mpi

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestSameSidecar checks that failures of ranks are reported to the sidecar with which the
// ranks began, and to no other one in its place, whether its socket exists already or not.
func TestSameSidecar(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listen := func() net.Listener {
		l, err := net.Listen("unix", socket+names.LaunchSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var told []string
	l := listen()
	report := SameSidecar(socket, func(rank, code int) { told = append(told, fmt.Sprint(rank, " ", code)) })
	report(1, 2)
	_ = l.Close() // Close removes it
	report(3, 4)
	l = listen()
	defer func() { _ = l.Close() }() // no process connects
	report(5, 6)
	if want := []string{"1 2"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
