//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// static builds a static program that executes its arguments, as tini and gosu do in images.
func static(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "wrap")
	text, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-static", "-Wall", "-Werror", "-o", out, filepath.Join("testdata", "wrap.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestWrapped checks that ranks started by a static wrapper are one job, that an mpirun started by
// it is started once, and that a program without MPI ends with its own code.
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

// TestWrappedWithoutRanks checks that a job fails with the reason if a process started by a static
// wrapper loads an MPI and no rank attaches, on the command line and as an MPIJob. A process whose
// MPI selects another transport is refused.
func TestWrappedWithoutRanks(t *testing.T) {
	const alone = "a process of this pod has loaded an MPI library, but no rank has met the others: each ran as a job of its own"
	wrap := static(t)
	var none implementation
	loads := none.build(t, "clears")
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			line := job{ranks: 2, pods: 2, env: append(m.env, "P="+m.build(t, "first"))}
			file := job{file: "testdata/required.yaml", env: line.env}
			for _, c := range []struct {
				j       job
				want    string
				program []string
			}{
				{line, alone, []string{loads, "loads", m.library}},
				{file, alone, []string{loads, "loads", m.library}},
				{line, "was refused: its MPI took another transport: ", []string{"/bin/sh", "-c", "FI_PROVIDER=tcp exec $P"}},
			} {
				if code, out := c.j.run(t, append([]string{wrap}, c.program...)...); code == 0 || !strings.Contains(out, c.want) || strings.Contains(out, "has begun") {
					t.Errorf("%s: exit code %d, want %q\n%s", c.program, code, c.want, out)
				}
			}
		})
	}
}

// TestAlone checks that a job fails if the ranks of a script each run as a job of their own, although
// each exits with 0.
func TestAlone(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} { // the others do not start without these variables
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

// TestSelection checks that an option of a program's own mpirun that selects another transport ends
// the job before its first message, with an error that names it, and that other options have no
// effect.
func TestSelection(t *testing.T) { selection(t, mpich(t), openmpi4(t)) }

// TestSelectionOthers does the same for the other two MPIs.
func TestSelectionOthers(t *testing.T) { selection(t, intel(t), openmpi5(t)) }

func selection(t *testing.T, implementations ...implementation) {
	t.Helper()
	mca := func(options string) []string { return strings.Fields(options) }
	openmpi := map[string]string{ // text of the refusal; "": the job succeeds
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

// TestHosts checks that an mpirun that names hosts, or a file of hosts, is refused, and that the
// error names the options to remove.
func TestHosts(t *testing.T) {
	const own, other = "the hosts are those of the job; remove -host, -hosts, -hostfile, -machinefile", "remove hosts of its line (-host, -hostfile, -machinefile)"
	for _, m := range all(t) {
		host, file, line := "localhost", "-machinefile", "%s:4\n"
		switch m.name {
		case "openmpi4":
			host, file, line = "localhost:4", "-machinefile", "%s slots=4\n"
		case "openmpi5":
			host, file, line = "localhost:4", "--hostfile", "%s slots=4\n"
		case "mpich":
			file = "-f"
		}
		program := m.build(t, "check")
		for what, c := range map[string]struct {
			options []string
			want    string
		}{
			"a host":                 {[]string{"-host", host}, own},
			"a file with this host":  {[]string{file, hostfile(t, fmt.Sprintf(line, "localhost"))}, own},
			"a file with other ones": {[]string{file, hostfile(t, fmt.Sprintf(line, "node-1.example.com")+fmt.Sprintf(line, "node-2.example.com"))}, other},
		} {
			t.Run(m.name+"/"+what, func(t *testing.T) {
				code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, slices.Concat([]string{m.starter(t)}, c.options, []string{"-n", "4", program})...)
				if code == 0 || !strings.Contains(out, c.want) || strings.Contains(out, "checked over") {
					t.Errorf("exit code %d, want %q\n%s", code, c.want, out)
				}
			})
		}
	}
}

func hostfile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCleared checks that a program whose environment was cleared or changed by a wrapper fails the
// job, with the reason, when it starts its MPI, in whatever way and at whatever position of a script
// it was started.
func TestCleared(t *testing.T) {
	const cleared = "a wrapper has cleared its environment (env -i, su -, sudo)"
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "check")
			library := "LD_LIBRARY_PATH="
			for _, e := range m.env {
				if strings.HasPrefix(e, library) {
					library = e
				}
			}
			home := t.TempDir() + "/wrapped" // su - removes LD_LIBRARY_PATH
			script(t, home, `export "`+library+`"; exec `+program)
			for text, want := range map[string]string{
				`exec env -i "$LIBRARY" $P`:                                     cleared,
				`su - -s $HOME_P root`:                                          cleared, // a login shell would run root's profile, which may take a minute
				`exec env -i sh -c "$LIBRARY exec $P"`:                          cleared,
				`$P && env -i "$LIBRARY" $P`:                                    cleared,
				`$P && LD_PRELOAD= FI_PROVIDER=tcp $P`:                          "remove FI_PROVIDER=tcp",
				`$P && env -u LD_PRELOAD -u FI_PROVIDER -u OUTRIGGER_SOCKET $P`: cleared,
			} {
				env := append([]string{"LIBRARY=" + library, "P=" + program, "HOME_P=" + home}, m.env...)
				code, out := job{ranks: 4, pods: 2, env: env}.run(t, "sh", "-c", text)
				if code == 0 || !strings.Contains(out, want) || strings.Contains(out, "checked over 1 ranks") {
					t.Errorf("%s: exit code %d, want a refusal that says %q\n%s", text, code, want, out)
				}
			}
		})
	}
}

// TestClearedBy tests each of the functions that start a program.
func TestClearedBy(t *testing.T) {
	m := openmpi4(t) // its programs need no LD_LIBRARY_PATH
	clears, program := m.build(t, "clears"), m.build(t, "check")
	for _, by := range []string{"execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat", "posix_spawn", "posix_spawnp", "vfork"} {
		code, out := job{ranks: 2, pods: 2}.run(t, "sh", "-c", "$0 $1 $2", clears, by, program)
		if code == 0 || !strings.Contains(out, "a wrapper has cleared its environment") {
			t.Errorf("%s: exit code %d\n%s", by, code, out)
		}
	}
}

// TestClearedRight checks that a program runs with a cleared environment if it starts no MPI, is in
// a job of one rank, or is exempt by a setting of the job. That includes a program that was built
// with AddressSanitizer, or has it in LD_PRELOAD, and a start from the smallest stack.
func TestClearedRight(t *testing.T) {
	m := mpich(t)
	o := openmpi4(t)
	clears, program := o.build(t, "clears"), m.build(t, "check")
	asan, err := exec.CommandContext(t.Context(), "gcc", "-print-file-name=libasan.so").Output()
	if err != nil {
		t.Fatal(err)
	}
	var none implementation
	j := job{ranks: 4, pods: 2, env: append([]string{
		"P=" + program, "C=" + clears, "L=" + m.library,
		"A=" + none.build(t, "clears", "-fsanitize=address"), "ASAN=" + strings.TrimSpace(string(asan)),
	}, m.env...)}
	for _, text := range []string{
		`exec env -i /bin/true`,
		`$P && env -i "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" $C loads $L`,
		`$P && LD_PRELOAD= $P`,
		`$P && su root -c "env -i true"`,
		`exec env -i $A loads libm.so.6`,
		`exec env LD_PRELOAD= ASAN_OPTIONS=detect_leaks=0 $A loads libm.so.6`,
		`exec env LD_PRELOAD= ASAN_OPTIONS= $A loads libm.so.6`,
		`exec env -i LD_PRELOAD=$ASAN /bin/true`,
		`$P && $C stack /bin/true`,
	} {
		j.mustRun(t, "", "sh", "-c", text)
	}
	out := j.mustRun(t, "", "sh", "-c", `$P && env -i OUTRIGGER_MPI_CHECK=off "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" $P`)
	if n := strings.Count(out, "checked over 1 ranks"); n != 4 {
		t.Errorf("%d jobs of one rank, want 4\n%s", n, out)
	}
	j.ranks, j.pods = 1, 1
	j.mustRun(t, "checked over 1 ranks", "sh", "-c", `exec env -i "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" $P`)
}

// TestStartedUnseen checks that a program that looks MPI_Init up by dlsym, and whose MPI has not
// selected Outrigger, fails at its end.
func TestStartedUnseen(t *testing.T) {
	m := mpich(t)
	const text = `import ctypes, sys
l = ctypes.CDLL(sys.argv[1]); l.MPI_Init(None, None); l.MPI_Finalize()`
	for start, want := range map[string]string{"env -i": "a wrapper has cleared its environment", "env LD_PRELOAD= FI_PROVIDER=tcp": "its MPI took another transport"} {
		code, out := job{ranks: 2, pods: 2, env: append([]string{"P=" + m.build(t, "check"), "L=" + m.library, "S=" + start, "T=" + text}, m.env...)}.run(t, "sh", "-c", `$P && $S "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" /usr/bin/python3 -c "$T" $L`)
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, want %q\n%s", start, code, want, out)
		}
	}
}

// script writes a shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}
