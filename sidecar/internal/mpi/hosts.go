package mpi

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/remote"
)

// plainEnv returns this process's environment without the variables of a rank.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, names.EnvRank+"=") || strings.HasPrefix(v, names.EnvSocket+"=")
	})
}

// providerEnv returns the variables that make the ranks of this pod use the provider.
func (s *Starter) providerEnv() []string {
	return slices.Concat(environment(s.family, s.dir), sharing(s.shared.path))
}

// commandEnv returns the environment of commands that are started in this pod for an
// mpirun. Ranks inherit it from the daemon; the MPI adds its own variables.
func (s *Starter) commandEnv() []string {
	env := slices.Concat(plainEnv(), s.providerEnv(), s.daemons, []string{
		names.EnvSocket + "=" + s.socket, names.EnvAgent + "=" + string(s.management()),
	})
	if n := s.job.world(); n > 1 {
		first := s.job.first
		env = append(env, names.EnvMPIRanks+"="+strconv.Itoa(n), fmt.Sprintf("%s=%d-%d", names.EnvMPIHere, first, first+s.job.ranks()-1))
	}
	return env
}

// without returns env without the variables that other sets.
func without(env, other []string) []string {
	name := func(v string) string { n, _, _ := strings.Cut(v, "="); return n }
	return slices.DeleteFunc(env, func(v string) bool {
		return slices.ContainsFunc(other, func(o string) bool { return name(o) == name(v) })
	})
}

// programEnv returns the environment of a program that calls mpirun. Hydra passes it to all
// ranks, and the sockets of pods on one machine differ, so that it contains no socket. It
// does not choose the transport either: an MPI program that a script starts outside of its
// mpirun is a job of one rank, and needs no sidecar.
func (s *Starter) programEnv(folder string) ([]string, error) {
	lists := map[string]string{"openmpi": "%s slots=%d\n", "hydra": "%s:%d\n"}
	for name, form := range lists {
		var text strings.Builder
		for pod, n := range s.job.layout {
			if n > 0 {
				fmt.Fprintf(&text, form, remote.Host(pod), n)
			}
		}
		lists[name] = filepath.Join(folder, name)
		if err := os.WriteFile(lists[name], []byte(text.String()), 0o600); err != nil {
			return nil, fmt.Errorf("the list of hosts for mpirun: %w", err)
		}
	}
	env := slices.Concat(without(plainEnv(), s.providerEnv()), s.extra, []string{
		names.EnvAgent + "=" + string(s.management()),
		// mpirun requires these if the user is root, as in many containers.
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		// Open MPI 4.1
		"OMPI_MCA_plm=rsh", "OMPI_MCA_plm_rsh_agent=" + s.agent(), "OMPI_MCA_orte_default_hostfile=" + lists["openmpi"],
		// Open MPI 5, of which --oversubscribe places all ranks on the first host by
		// another policy
		"PRTE_MCA_plm=ssh", "PRTE_MCA_plm_ssh_agent=" + s.agent(), "PRTE_MCA_prte_default_hostfile=" + lists["openmpi"],
		"PRTE_MCA_rmaps_default_mapping_policy=slot",
		"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_MCA_prte_tmpdir_base=" + folder, // it leaves files
		// MPICH
		"HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=" + s.agent(), "HYDRA_HOST_FILE=" + lists["hydra"],
		// Intel MPI takes the number of ranks of a host from a variable, and not from the
		// list.
		"I_MPI_HYDRA_BOOTSTRAP=ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC=" + s.agent(), "I_MPI_HYDRA_HOST_FILE=" + lists["hydra"],
		"I_MPI_PERHOST=" + strconv.Itoa(slices.Max(s.job.layout)),
		// Each mpirun would bind its ranks to the first cores of the node, and so would
		// those of other pods on the same node.
		"OMPI_MCA_hwloc_base_binding_policy=none", "PRTE_MCA_hwloc_default_binding_policy=none", "I_MPI_PIN=0",
	})
	// Daemons of hydra connect to mpiexec by its host's name, which other pods cannot
	// resolve; with an interface they use the interface's address.
	if name := reachable(); name != "" {
		env = append(env, "HYDRA_IFACE="+name, "I_MPI_HYDRA_IFACE="+name)
	}
	return env, nil
}

// reachable returns the interface by which other pods reach this one: the first with an
// IPv4 address that is not the loopback's.
func reachable() string {
	list, _ := net.Interfaces() // without one, the host's name is used
	loopback := ""
	for _, i := range list {
		addresses, _ := i.Addrs() // as above
		v4 := slices.ContainsFunc(addresses, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.To4() != nil
		})
		switch {
		case !v4 || i.Flags&net.FlagUp == 0:
		case i.Flags&net.FlagLoopback != 0:
			loopback = i.Name
		default:
			return i.Name
		}
	}
	return loopback
}
