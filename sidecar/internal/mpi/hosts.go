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

// plain is this process's environment without what the launcher says to one rank.
func plain() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, names.EnvRank+"=") || strings.HasPrefix(v, names.EnvSocket+"=")
	})
}

// chosen is what has the ranks of this pod use the provider.
func (s *Starter) chosen() []string {
	return slices.Concat(environment(s.family, s.dir), sharing(s.shared.path))
}

// commands is the environment of what is started in this pod for an mpirun. Ranks
// get it from the daemon: an MPI adds to it what it has of its own.
func (s *Starter) commands() []string {
	env := slices.Concat(plain(), s.chosen(), s.daemons, []string{
		names.EnvSocket + "=" + s.socket, names.EnvAgent + "=" + string(s.management()),
	})
	if n := s.job.world(); n > 1 {
		first := s.job.first
		env = append(env, names.EnvMPIRanks+"="+strconv.Itoa(n), fmt.Sprintf("%s=%d-%d", names.EnvMPIHere, first, first+s.job.ranks()-1))
	}
	return env
}

// without is an environment less the variables that another one sets.
func without(env, other []string) []string {
	name := func(v string) string { n, _, _ := strings.Cut(v, "="); return n }
	return slices.DeleteFunc(env, func(v string) bool {
		return slices.ContainsFunc(other, func(o string) bool { return name(o) == name(v) })
	})
}

// program is the environment of a program that calls mpirun. Hydra gives it to all ranks, and the
// sockets of pods on one machine differ. It does not choose the transport either: an MPI program
// that a script starts outside its mpirun is a job of one rank, and does without a sidecar.
func (s *Starter) program(folder string) ([]string, error) {
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
	env := slices.Concat(without(plain(), s.chosen()), s.wished, []string{
		names.EnvAgent + "=" + string(s.management()),
		// mpirun asks for these; a container's user is often root.
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		// Open MPI 4.1
		"OMPI_MCA_plm=rsh", "OMPI_MCA_plm_rsh_agent=" + s.agent(), "OMPI_MCA_orte_default_hostfile=" + lists["openmpi"],
		// Open MPI 5, of which --oversubscribe places all ranks on the first host by another policy
		"PRTE_MCA_plm=ssh", "PRTE_MCA_plm_ssh_agent=" + s.agent(), "PRTE_MCA_prte_default_hostfile=" + lists["openmpi"],
		"PRTE_MCA_rmaps_default_mapping_policy=slot",
		"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_MCA_prte_tmpdir_base=" + folder, // it leaves files
		// MPICH
		"HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=" + s.agent(), "HYDRA_HOST_FILE=" + lists["hydra"],
		// Intel MPI takes the number of ranks of a host from elsewhere.
		"I_MPI_HYDRA_BOOTSTRAP=ssh", "I_MPI_HYDRA_BOOTSTRAP_EXEC=" + s.agent(), "I_MPI_HYDRA_HOST_FILE=" + lists["hydra"],
		"I_MPI_PERHOST=" + strconv.Itoa(slices.Max(s.job.layout)),
		// Each would bind its ranks to the first cores of the node that it sees, and
		// so would those of other pods there.
		"OMPI_MCA_hwloc_base_binding_policy=none", "PRTE_MCA_hwloc_default_binding_policy=none", "I_MPI_PIN=0",
	})
	// Daemons of hydra connect to mpiexec by its host's name, which other pods do not
	// know; by an interface it takes that one's address.
	if name := reachable(); name != "" {
		env = append(env, "HYDRA_IFACE="+name, "I_MPI_HYDRA_IFACE="+name)
	}
	return env, nil
}

// reachable is the interface by which other pods reach this one: the first with an
// IPv4 address that is not the loopback's.
func reachable() string {
	list, _ := net.Interfaces() // none: the name has to do
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
