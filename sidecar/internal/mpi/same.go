package mpi

import (
	"os"
	"syscall"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// listening identifies the socket at which a sidecar listens for its launcher: a sidecar that is
// started in the place of another one binds its own. The zero value: there is none.
type listening struct {
	inode   uint64
	changed syscall.Timespec // inodes are used again
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

// SameSidecar makes a function that calls tell as long as the sidecar with a socket for applications
// is the one of now. Ranks fail when their sidecar is killed; that is no news for another one that is
// started in its place, which would take it for the cause.
func SameSidecar(socket string, tell func(rank, code int)) func(rank, code int) {
	begun := listensAt(socket)
	return func(rank, code int) {
		if listensAt(socket) == begun {
			tell(rank, code)
		}
	}
}
