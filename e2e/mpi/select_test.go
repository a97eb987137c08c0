//go:build mpi

package mpi

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// static builds a program that runs its arguments, as tini and gosu do in images.
func static(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "wrap")
	text, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-static", "-Wall", "-Werror", "-o", out, filepath.Join("testdata", "wrap.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestWrapped: ranks below a static wrapper are one job, an mpirun below it is started once, and a
// program without MPI ends with its own code.
func TestWrapped(t *testing.T) {
	wrap := static(t)
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "check")
			job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "checked over 4 ranks", wrap, program)
			out := job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "checked over 4 ranks", wrap, m.starter(t), "-n", "4", program)
			if n := strings.Count(out, "checked over"); n != 1 {
				t.Errorf("the program ran %d times\n%s", n, out)
			}
		})
	}
	job{ranks: 2, pods: 2}.mustRun(t, "has loaded an MPI library; use --mpi none", wrap, "/bin/true")
	if code, out := (job{ranks: 2, pods: 2}).run(t, wrap, "/bin/sh", "-c", "exit 3"); code != 3 {
		t.Errorf("exit code %d, want 3\n%s", code, out)
	}
}

// TestAlone: ranks of a script that each run as a job of their own fail the job, although each
// ended well.
func TestAlone(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} { // others do not start so
		t.Run(m.name, func(t *testing.T) {
			line := []string{"env", "-u", "PMI_FD", "-u", "PMI_RANK", "-u", "PMI_SIZE", "-u", "FLUX_JOB_ID", "-u", "PMIX_NAMESPACE", "-u", "PMIX_RANK", m.build(t, "check")}
			code, out := job{ranks: 2, pods: 2, env: m.env}.run(t, line...)
			if code == 0 || !strings.Contains(out, "each ran as a job of its own") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			job{ranks: 1, pods: 1, env: m.env}.mustRun(t, "checked over 1 ranks", line...)
		})
	}
}

// TestSelection: an option of a program's own mpirun that selects another transport ends the job
// before its first message, and is named; one that does not changes nothing.
func TestSelection(t *testing.T) { selection(t, mpich(t), openmpi4(t)) }

// TestSelectionOthers is the same for the other two.
func TestSelectionOthers(t *testing.T) { selection(t, intel(t), openmpi5(t)) }

func selection(t *testing.T, implementations ...implementation) {
	t.Helper()
	mca := func(options string) []string { return strings.Fields(options) }
	openmpi := map[string]string{ // what the refusal names; "": the job is right
		"--mca pml ob1 --mca btl ^openib":          "OMPI_MCA_pml=ob1",
		"--mca pml ob1 --mca btl self,tcp":         "OMPI_MCA_pml=ob1",
		"--mca pml ^cm":                            "OMPI_MCA_pml=^cm",
		"--mca mtl_ofi_provider_include tcp":       "OMPI_MCA_mtl_ofi_provider_include=tcp",
		"-x FI_PROVIDER=tcp":                       "FI_PROVIDER=tcp",
		"-x FI_PROVIDER_PATH=/nowhere":             "FI_PROVIDER_PATH=/nowhere",
		"--mca mtl_ofi_provider_exclude outrigger": "OMPI_MCA_mtl_ofi_provider_exclude=outrigger",
		"--mca btl ^openib":                        "",
		"--mca btl tcp,self":                       "",
		"--mca pml cm":                             "",
		"--mca pml ^ucx --bind-to core":            "",
		"--mca coll ^hcoll --mca osc ^ucx":         "",
		"--mca btl_tcp_if_include lo --tag-output": "",
	}
	hydra := map[string]string{
		"-genv FI_PROVIDER tcp":                 "FI_PROVIDER=tcp",
		"-genv FI_PROVIDER_PATH /nowhere":       "FI_PROVIDER_PATH=/nowhere",
		"-genv FI_PROVIDER outrigger":           "",
		"-prepend-rank -genv OMP_NUM_THREADS 2": "",
	}
	impi := map[string]string{
		"-genv I_MPI_FABRICS shm:ofi -genv FI_PROVIDER tcp -genv I_MPI_OFI_PROVIDER tcp": "FI_PROVIDER=tcp",
		"-genv I_MPI_DEBUG 3": "",
	}
	for _, m := range implementations {
		options := map[string]map[string]string{"openmpi4": openmpi, "openmpi5": openmpi, "mpich": hydra, "intel": impi}[m.name]
		program := m.build(t, "signed")
		for option, names := range options {
			t.Run(m.name+"/"+option, func(t *testing.T) {
				line := append(append([]string{m.starter(t), "-n", "4"}, mca(option)...), program)
				code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, line...)
				switch {
				case names == "" && (code != 0 || !strings.Contains(out, "signed: 0 wrong")):
					t.Errorf("exit code %d\n%s", code, out)
				case names != "" && (code == 0 || !strings.Contains(out, "remove "+names) && !strings.Contains(out, ", "+names)):
					t.Errorf("exit code %d, want a refusal that names %s\n%s", code, names, out)
				}
			})
		}
	}
}

// TestHosts: a line that names hosts of its own is refused with what to remove.
func TestHosts(t *testing.T) {
	for _, m := range []implementation{mpich(t), openmpi4(t), openmpi5(t)} {
		t.Run(m.name, func(t *testing.T) {
			code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, m.starter(t), "-host", "localhost:4", "-n", "4", m.build(t, "check"))
			if code == 0 || !strings.Contains(out, "the hosts are those of the job; remove -host") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestCleared: where a wrapper clears the environment no process can tell of its MPI: the launcher
// claims no more than it knows, and names such wrappers.
func TestCleared(t *testing.T) {
	for _, m := range []implementation{mpich(t), intel(t)} {
		t.Run(m.name, func(t *testing.T) {
			line := append(append([]string{"env", "-i"}, m.env...), m.build(t, "check"))
			out := job{ranks: 2, pods: 2, env: m.env}.mustRun(t, "its environment was cleared (env -i, su -, sudo)", line...)
			if strings.Contains(out, "no process of the first pod has loaded") {
				t.Errorf("a process has loaded one:\n%s", out)
			}
		})
	}
}
