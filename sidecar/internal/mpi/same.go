package mpi

import (
	"os"
	"syscall"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// listening identifies the socket at which a sidecar listens for its launcher: a sidecar
// that is started in the place of another one binds its own. The zero value means that
// there is none.
type listening struct {
	inode   uint64
	changed syscall.Timespec // inodes are reused
}

func listensAt(socket string) listening {
	st, err := os.Stat(socket + names.LaunchSuffix)
	if err != nil {
		return listening{}
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return listening{}
	}
	return listening{sys.Ino, sys.Ctim}
}

// SameSidecar returns a function that calls report as long as the sidecar with a socket for
// applications is the present one. Ranks fail when their sidecar is killed; a sidecar that
// is started in its place would take such a failure for the cause.
func SameSidecar(socket string, report func(rank, code int)) func(rank, code int) {
	begun := listensAt(socket)
	return func(rank, code int) {
		if listensAt(socket) == begun {
			report(rank, code)
		}
	}
}
