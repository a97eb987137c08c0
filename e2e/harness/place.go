package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
)

// clusterVariable names the cluster that is meant, for machines that several
// people's tests share. Without it there is one a machine.
const clusterVariable = "OUTRIGGER_CLUSTER"

// place is where one of the machine's clusters lives.
type place struct {
	dir  string // everything of it; not below /run or /var/lib, of which every node has its own
	lock string // held by its keeper, so that the kernel releases it whatever becomes of it
}

// clusterName is short enough that sockets in the cluster's folder have valid
// paths (unix(7)).
var clusterName = regexp.MustCompile(`^[a-z0-9]{0,16}$`)

func here() (place, error) {
	name := os.Getenv(clusterVariable)
	if !clusterName.MatchString(name) {
		return place{}, fmt.Errorf("%s is %q; a cluster's name is at most 16 small letters and digits", clusterVariable, name)
	}
	full := "outrigger-cluster"
	if name != "" {
		full += "-" + name
	}
	return place{dir: "/var/cache/" + full, lock: "/run/lock/" + full + ".lock"}, nil
}

// take takes the lock: as long as the file is open, no other cluster can be in
// this place.
func (p place) take() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(p.lock), 0o755); err != nil {
		return nil, fmt.Errorf("the cluster's lock: %w", err)
	}
	f, err := os.OpenFile(p.lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the cluster's lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("this machine has a cluster already; use it, take it down with `make cluster-down`, or name another one with %s", clusterVariable)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeLeftovers removes what a cluster leaves that was not taken down: its
// processes ended with its keeper, and so did its mounts and networks. The lock
// must be held.
func (p place) removeLeftovers() error {
	layout := keeper.Layout{Dir: p.dir}
	if err := errors.Join(layout.RemoveCgroups(), os.RemoveAll(p.dir)); err != nil {
		return fmt.Errorf("remove what an earlier cluster left: %w", err)
	}
	return nil
}
