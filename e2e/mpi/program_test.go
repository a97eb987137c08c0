//go:build mpi

package mpi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestCheck runs testdata/check.c over every MPI.
func TestCheck(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "check")
		for _, c := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {4, 2}, {8, 4}} {
			t.Run(fmt.Sprintf("%s/ranks=%d/pods=%d", m.name, c[0], c[1]), func(t *testing.T) {
				job{ranks: c[0], pods: c[1], env: m.env}.mustRun(t, fmt.Sprintf("checked over %d ranks", c[0]), program)
			})
		}
	}
}

// TestValues checks results that Open MPI gets wrong over pml cm and btl ofi, but right over its own
// choice of transport: they must be right over every MPI.
func TestValues(t *testing.T) {
	for _, m := range all(t) {
		layouts := [][2]int{{2, 2}}
		if m.name == "openmpi4" {
			layouts = [][2]int{{2, 1}, {2, 2}, {4, 2}}
		}
		for _, name := range []string{"offsets", "signed"} {
			program := m.build(t, name)
			for _, c := range layouts {
				t.Run(fmt.Sprintf("%s/%s/ranks=%d/pods=%d", m.name, name, c[0], c[1]), func(t *testing.T) {
					out := job{ranks: c[0], pods: c[1], env: m.env}.mustRun(t, name+": 0", program)
					if strings.Contains(out, "wrong:") {
						t.Error(out)
					}
				})
			}
		}
	}
}

// TestSanitizedProgram checks that a program built with AddressSanitizer starts with the libraries
// that the launcher preloads.
func TestSanitizedProgram(t *testing.T) {
	m := openmpi4(t)
	program := m.build(t, "check", "-fsanitize=address")
	for _, wish := range []string{names.EnvMPIArena + "=off", names.EnvMPIArena + "=on", names.EnvMPIProgress + "=all"} {
		t.Run(wish, func(t *testing.T) {
			job{ranks: 2, pods: 2, env: []string{wish, "ASAN_OPTIONS=detect_leaks=0"}}.mustRun(t, "checked over 2 ranks", program)
		})
	}
}

// TestNoSharedMemory checks that ranks of Open MPI are not started if /dev/shm has no room for their
// PMIx server, and that the job's error names the size that is needed.
func TestNoSharedMemory(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		env := append(m.env, "TMPDIR=/dev/null/none")
		code, out := job{ranks: 2, pods: 2, env: env, mount: sharedMemory("4m"), flags: []string{"--dir", t.TempDir()}}.run(t, m.build(t, "check"))
		if code == 0 || !strings.Contains(out, "the container needs a /dev/shm of 16 MiB for each pod") {
			t.Errorf("%s: exit code %d\n%s", m.name, code, out)
		}
	}
}

// TestSmallSharedMemory checks that many pods start on a machine whose /dev/shm has no room for all
// of them, such as that of a container by default.
func TestSmallSharedMemory(t *testing.T) {
	m := openmpi4(t)
	program := m.build(t, "check")
	for _, size := range []string{"64m", "16m"} {
		t.Run(size, func(t *testing.T) {
			job{ranks: 16, pods: 8, mount: sharedMemory(size)}.mustRun(t, "checked over 16 ranks", program)
		})
	}
}

// TestSplit checks that the ranks of a pod are one node to every MPI, and share windows, and that the
// report says so if an MPI transfers their messages itself.
func TestSplit(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "split")
			job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "split: 0 wrong", program, "2")
			job{ranks: 3, pods: 1, env: m.env}.mustRun(t, "split: 0 wrong", program, "3")
		})
	}
	m := mpich(t)
	job{ranks: 4, pods: 2, env: m.env, flags: []string{"--report"}}.mustRun(t, "Messages within the pods of ranks 0 to 3 are not counted", m.build(t, "split"), "2")
}

// TestRunpath checks that the PMIx server finds the MPI of a program that has its path in RUNPATH.
func TestRunpath(t *testing.T) {
	m := openmpi5(t)
	m.link = append(m.link, "-Wl,-rpath,"+at(t, "mpi/openmpi/lib"))
	job{ranks: 2, pods: 2}.mustRun(t, "checked over 2 ranks", m.build(t, "check"))
}

// TestSpawnRefused checks that ranks that spawn more ranks get an error, and can continue.
func TestSpawnRefused(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			job{ranks: 3, pods: 2, env: m.env}.mustRun(t, "spawn is refused", m.build(t, "spawn"))
		})
	}
}

// TestJoiningRefused checks that ranks that connect to another job get an error, and can continue.
// Otherwise all ranks of Open MPI but the root wait for the root for ever. (MPICH and Intel MPI wait
// for the other job.)
func TestJoiningRefused(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		t.Run(m.name, func(t *testing.T) {
			job{ranks: 3, pods: 2, env: m.env}.mustRun(t, "joining is refused", m.build(t, "joins"))
		})
	}
}

// TestSecondSession checks that a process can begin a session of MPI after it has ended one. (Open
// MPI 4.1 has no sessions, the libpmix of 5 exits at the end of the second one, and ranks of MPICH in
// one pod sometimes hang in MPICH's shared memory, as with its mpiexec.)
func TestSecondSession(t *testing.T) {
	m := mpich(t)
	out := job{ranks: 4, pods: 4, env: m.env}.mustRun(t, "session 0: rank 1 of 4", m.build(t, "sessions"))
	if n := strings.Count(out, "session 1: rank"); n != 4 {
		t.Errorf("%d second sessions, want 4\n%s", n, out)
	}
}

// TestGroups creates communicators from groups of some of the ranks, for which Open MPI 5 uses PMIx.
// (Open MPI 4.1 has no such call.)
func TestGroups(t *testing.T) {
	for _, m := range pythons(t) {
		program := m.build(t, "groups")
		for _, c := range [][2]int{{1, 1}, {2, 2}, {5, 2}, {7, 3}} {
			t.Run(fmt.Sprintf("%s/ranks=%d/pods=%d", m.name, c[0], c[1]), func(t *testing.T) {
				job{ranks: c[0], pods: c[1], env: m.env}.mustRun(t, fmt.Sprintf("groups of %d ranks are right", c[0]), program)
			})
		}
	}
}

// TestLarge sends a message of 1 GiB.
func TestLarge(t *testing.T) {
	m := mpich(t)
	job{ranks: 2, pods: 2, env: m.env}.mustRun(t, "checked over 2 ranks", m.build(t, "check"), "1024")
}

// TestPassive tests epochs in which the target does not call MPI, with sizes above and below every
// limit between protocols.
func TestPassive(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "windows")
		for _, c := range [][2]int{{2, 1}, {2, 2}, {4, 2}} {
			t.Run(fmt.Sprintf("%s/ranks=%d/pods=%d", m.name, c[0], c[1]), func(t *testing.T) {
				job{ranks: c[0], pods: c[1], env: m.env}.mustRun(t, fmt.Sprintf("windows of %d ranks are right", c[0]), program)
			})
		}
	}
}

// benchmarks has programs of the Intel MPI Benchmarks, with arguments for few repetitions and sizes.
// Each program runs all patterns of its chapter of MPI.
var benchmarks = map[string][]string{
	"IMB-MPI1": {"-iter", "5", "-msglog", "14:16"},
	"IMB-NBC":  {"-iter", "3", "-msglog", "14:15"},
	"IMB-P2P":  {"-iter", "5", "-msglog", "14:16"},
	"IMB-RMA":  {"-iter", "5", "-msglog", "14:16"},
	"IMB-MT":   {"-repeat", "3", "-count", "1,1000,100000"},
}

// TestBenchmarks runs the Intel MPI Benchmarks on Intel MPI and on MPICH.
func TestBenchmarks(t *testing.T) {
	for _, m := range []implementation{mpich(t), intel(t)} {
		for program, args := range benchmarks {
			t.Run(m.name+"/"+program, func(t *testing.T) {
				env := append([]string{m.env[0] + ":" + at(t, "mpi/openmp/lib")}, m.env[1:]...) // for IMB-MT
				last := "Finalize"
				if program == "IMB-MT" { // it does not print Finalize, over any transport
					last = "Benchmarking AllReduceMT"
				}
				job{ranks: 2, pods: 2, env: env}.mustRun(t, last, append([]string{at(t, "mpi/intel/bin", program)}, args...)...)
			})
		}
	}
}

// TestThreads uses MPI_THREAD_MULTIPLE.
func TestThreads(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "threads")
		for _, progress := range []string{"off", "all"} {
			t.Run(m.name+"/"+progress, func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"="+progress)
				job{ranks: 3, pods: 3, env: env}.mustRun(t, "have talked", program)
			})
		}
	}
}

// TestThreadsYield checks that threads of Open MPI that poll together yield between their polls: one of
// them holds a lock of the MPI while it polls a queue, and the others try to acquire it without a pause.
// A program with one thread, or whose user has chosen, is left as it is.
func TestThreadsYield(t *testing.T) {
	const chosen = "OMPI_MCA_mpi_yield_when_idle=0"
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		program := m.build(t, "threads")
		for _, c := range []struct {
			name, says string
			env        []string
			line       []string
		}{
			{"threads", "the MPI yields", nil, []string{program}},
			{"one thread", "the MPI does not yield", nil, []string{program, "1"}},
			{"chosen", "the MPI does not yield", []string{chosen}, []string{program}},
		} {
			t.Run(m.name+"/"+c.name, func(t *testing.T) {
				out := job{ranks: 2, pods: 2, env: append(slices.Clone(m.env), c.env...)}.mustRun(t, "have talked", c.line...)
				for _, rank := range []string{"rank 0: ", "rank 1: "} {
					if !strings.Contains(out, rank+c.says) {
						t.Errorf("want %q of both ranks\n%s", c.says, out)
					}
				}
			})
		}
	}
}

// TestThreadsSend checks that blocking sends of threads of Open MPI that poll together return although
// no receive has matched them: Open MPI waits for the end of such a send in a loop without a pause.
func TestThreadsSend(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		t.Run(m.name, func(t *testing.T) {
			job{ranks: 2, pods: 2, env: m.env}.mustRun(t, "some sends have returned before their receives", m.build(t, "sends"))
		})
	}
}

// TestPort checks that ranks whose inherited descriptors were closed before their MPI started find
// each other by a port.
func TestPort(t *testing.T) {
	for _, m := range []implementation{mpich(t), intel(t)} {
		t.Run(m.name, func(t *testing.T) {
			script := "exec 3>&-; exec " + m.build(t, "check")
			job{ranks: 4, pods: 2, mpi: "mpich", env: append(m.env, "OUTRIGGER_PMI=port")}.mustRun(t, "checked over 4 ranks", "bash", "-c", script)
			if code, out := (job{ranks: 2, pods: 2, mpi: "mpich", env: m.env}).run(t, "bash", "-c", script); code == 0 {
				t.Errorf("without descriptor and port it ran:\n%s", out)
			}
		})
	}
}

// TestRankKilled checks that the verdict names a rank that was killed.
func TestRankKilled(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, m.build(t, "killed"))
			if code != 128+9 || !strings.Contains(out, "rank 1 (pod 0) was killed by SIGKILL") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestNotUsed checks that a job fails with the reason if its ranks exit with 0 without using
// Outrigger.
func TestNotUsed(t *testing.T) {
	m, o := mpich(t), openmpi4(t)
	for what, c := range map[string]struct {
		program, mpi, want string
		env                []string
	}{
		"MPICH as Open MPI": {m.build(t, "check"), "openmpi", "is linked to MPICH: use MPICH, or auto", m.env},
		"another MPI":       {o.build(t, "check"), "mpich", "is linked to OpenMPI: use OpenMPI, or auto", nil},
		"no MPI at all":     {"/bin/true", "mpich", "each ran as a job of its own", nil},
	} {
		t.Run(what, func(t *testing.T) {
			code, out := job{ranks: 2, pods: 2, mpi: c.mpi, env: c.env}.run(t, c.program)
			if code == 0 || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %q\n%s", code, c.want, out)
			}
		})
	}
	job{ranks: 2, pods: 2}.mustRun(t, "", "/bin/true") // auto detects that it has no MPI
}

// TestUnsaid checks that a program that is linked to an MPI is refused without --mpi.
func TestUnsaid(t *testing.T) {
	m, o := mpich(t), openmpi4(t)
	for what, c := range map[string]struct {
		mpi, program, want string // want "": the program is not refused
		env                []string
	}{
		"MPICH":      {unsaid, m.build(t, "check"), "check is linked to an MPI (mpich), and nothing says that its ranks are one job: use --mpi auto", m.env},
		"Open MPI":   {unsaid, o.build(t, "check"), "check is linked to an MPI (openmpi)", o.env},
		"no MPI":     {unsaid, "/bin/true", "", nil},
		"as it is":   {"none", m.build(t, "check"), "", m.env},
		"over MPICH": {"auto", m.build(t, "check"), "", m.env},
	} {
		t.Run(what, func(t *testing.T) {
			code, out := job{ranks: 2, pods: 1, mpi: c.mpi, env: c.env}.run(t, c.program)
			if refused := strings.Contains(out, "linked to an MPI"); (code != 0) != refused || refused != (c.want != "") || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %q\n%s", code, c.want, out)
			}
		})
	}
}

// TestUnsaidInAJob checks that an MPIJob without mpi is refused before its program starts if that is
// linked to an MPI. A script is not refused, neither there nor on the command line: its MPI programs
// are jobs of one rank (docs/mpi.md).
func TestUnsaidInAJob(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "first")
			file := job{file: "testdata/unsaid.yaml", env: append(m.env, "P="+program)}
			code, out := file.run(t, program)
			if code == 0 || !strings.Contains(out, "reason: CannotStart") || !strings.Contains(out, "first is linked to an MPI (") || strings.Contains(out, "has begun") {
				t.Errorf("exit code %d\n%s", code, out)
			}
			scripts := []job{file}
			if m.name == "mpich" {
				scripts = append(scripts, job{ranks: 2, pods: 2, mpi: unsaid, env: file.env})
			}
			for _, j := range scripts {
				if out := j.mustRun(t, "", "sh", "-c", "exec $P"); strings.Count(out, "first: 0 wrong over 1 ranks") != 2 {
					t.Errorf("not two jobs of one rank\n%s", out)
				}
			}
		})
	}
}

// TestIdleRank checks that a job fails whose script exits with 0 in one rank without calling MPI, for
// which the other ranks would wait for ever. If it calls MPI in no rank, that is no error.
func TestIdleRank(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "check")
		for _, c := range []struct {
			pods, rank int
			want       string // the rank and pod in the error
			before     string // command before MPI_Init
		}{{1, 2, "rank 2 (pod 0)", ""}, {3, 0, "rank 0 (pod 0)", "sleep 2; "}, {3, 2, "rank 2 (pod 2)", ""}} {
			t.Run(fmt.Sprintf("%s/pods=%d/rank=%d", m.name, c.pods, c.rank), func(t *testing.T) {
				script := fmt.Sprintf("[ $%s = %d ] && exit 0; %sexec %s", names.EnvRank, c.rank, c.before, program)
				code, out := job{ranks: 3, pods: c.pods, env: m.env}.run(t, "sh", "-c", script)
				if code == 0 || !strings.Contains(out, c.want+" ended well, but it never called MPI_Init") {
					t.Errorf("exit code %d\n%s", code, out)
				}
			})
		}
	}
	job{ranks: 3, pods: 2}.mustRun(t, "no MPI", "sh", "-c", "sleep 0.$"+names.EnvRank+"; echo no MPI")
}

// TestNetPIPE runs Debian's NetPIPE, with its check of every byte.
func TestNetPIPE(t *testing.T) {
	out := job{ranks: 2, pods: 2, dir: t.TempDir()}.mustRun(t, "1048577 bytes", "NPopenmpi", "-i", "-u", "1048577")
	if strings.Contains(out, "ntegrity check failed") || strings.Count(out, "Integrity check passed") < 30 {
		t.Errorf("%s", out)
	}
}

// TestHPCC runs Debian's HPC Challenge with matrices of order 600.
func TestHPCC(t *testing.T) { challenge(t) }

// challenge runs the HPC Challenge, with env in its environment, and returns its output.
func challenge(t *testing.T, env ...string) string {
	t.Helper()
	raw, err := os.ReadFile("/usr/share/doc/hpcc/examples/_hpccinf.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := strings.Replace(string(raw), "1000         Ns", "600          Ns", 1)
	if err := os.WriteFile(filepath.Join(dir, "hpccinf.txt"), []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	out := job{ranks: 4, pods: 2, dir: dir, env: env}.mustRun(t, "", "hpcc")
	result, err := os.ReadFile(filepath.Join(dir, "hpccoutf.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Success=1\n", "CommWorldProcs=4\n", "MPIRandomAccess_ErrorsFraction=0\n", "HPL_N=600\n"} {
		if !strings.Contains(string(result), want) {
			t.Errorf("the result has no %q\n%s", want, result)
		}
	}
	return out
}

// thermo returns the lines of LAMMPS's output with thermodynamic values of a step, without the
// launcher's prefix.
func thermo(out string) []string {
	var list []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(strings.TrimPrefix(line, "[0]"))
		if len(fields) != 6 {
			continue
		}
		if _, err := strconv.ParseFloat(fields[1], 64); err == nil {
			list = append(list, strings.Join(fields, " "))
		}
	}
	return list
}

// TestLAMMPS runs Debian's LAMMPS on an example of its package. The numbers must be the same, to the
// last digit, as over Open MPI's own transport.
func TestLAMMPS(t *testing.T) {
	program := []string{"lmp", "-in", "/usr/share/lammps/examples/melt/in.melt", "-log", "none"}
	own := exec.CommandContext(t.Context(), "mpirun", append([]string{"--oversubscribe", "-n", "4"}, program...)...)
	own.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	own.Dir = t.TempDir()
	out, err := own.CombinedOutput()
	want := thermo(string(out))
	if err != nil || len(want) != 6 {
		t.Fatalf("over its own transport: %v\n%s", err, out)
	}
	got := thermo(job{ranks: 4, pods: 2, dir: t.TempDir()}.mustRun(t, "Loop time", program...))
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestKilledElsewhere checks that a rank of another pod reports which rank was killed, without the
// launcher of that rank.
func TestKilledElsewhere(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program, p := m.build(t, "killed"), startPods(t, 1, 1)
			var ranks []*rank
			for i := range 2 {
				launch := append([]string{"env"}, m.env...)
				launch = append(launch, at(t, "outrigger-launch"), "--socket", p.socket(i), "--ranks", fmt.Sprint(i), "--mpi", "auto", "--", program)
				ranks = append(ranks, p.start(i, i, launch...))
			}
			if code := ranks[1].end(); code != 128+9 {
				t.Errorf("the killed rank's launcher: exit code %d\n%s", code, ranks[1].says())
			}
			p.await("word of whose fault it was", func() bool {
				return strings.Contains(ranks[0].says(), "outrigger: rank 0: the job has failed: rank 1 failed")
			})
			if m.name == "intel" {
				return // its rank keeps waiting, until the test ends its process
			}
			if code := ranks[0].end(); code == 0 {
				t.Errorf("the other pod's launcher: exit code %d\n%s", code, ranks[0].says())
			}
		})
	}
}

// TestRankDies checks that the verdict names a rank that is killed during an access, an epoch, a
// collective or a large message, and that no other rank waits for it.
func TestRankDies(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "dies")
		for _, step := range []string{"message", "lock", "put", "get", "atomic", "sum", "fence"} {
			t.Run(m.name+"/"+step, func(t *testing.T) {
				code, out := job{ranks: 3, pods: 2, env: m.env}.run(t, program, step)
				if code != 128+9 || !strings.Contains(out, "rank 1 (pod 0) was killed by SIGKILL") {
					t.Errorf("exit code %d\n%s", code, out)
				}
			})
		}
	}
}

// TestAbort checks that MPI_Abort ends the job with its code, although MPICH's MPI_Abort returns and
// relies on its launcher to end the process.
func TestAbort(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "ends")
		for how, want := range map[string]int{"abort": 7, "abort -1": 255, "abort 256": 1} {
			t.Run(m.name+"/"+how, func(t *testing.T) {
				code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, append([]string{program}, strings.Fields(how)...)...)
				if code != want || !strings.Contains(out, "job failed: rank 1 ") || strings.Contains(out, "ended well") {
					t.Errorf("exit code %d, want %d\n%s", code, want, out)
				}
			})
		}
	}
}

// TestCrashAfterFinalize checks that all ranks learn of a rank that crashes after it has closed its
// session, and that the verdict does not name the ranks that the launcher then ends.
func TestCrashAfterFinalize(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, m.build(t, "ends"), "late")
			if code != 137 || !strings.Contains(out, "job failed: rank 1 (pod 0) was killed by SIGKILL") || strings.Contains(out, "rank 0 failed") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestNotFinalized checks that the verdict names a rank that exits with 0 without MPI_Finalize, and
// that no rank waits for it: neither ranks that handle its goodbye first, nor if a child of it still
// has its session's socket.
func TestNotFinalized(t *testing.T) {
	for _, m := range all(t) {
		for _, how := range []string{"exit", "child"} {
			t.Run(m.name+"/"+how, func(t *testing.T) {
				start := time.Now()
				code, out := job{ranks: 3, pods: 2, env: m.env}.run(t, m.build(t, "ends"), how)
				if code != 1 || !strings.Contains(out, "job failed: rank 1 (pod 0) ended well, but it has not called MPI_Finalize") || strings.Contains(out, "ended well\n") {
					t.Errorf("exit code %d\n%s", code, out)
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("the job took %v", took)
				}
			})
		}
	}
}

// TestKilledLeavesNothing checks that the next job removes the files in /dev/shm of a job of which
// all processes were killed.
func TestKilledLeavesNothing(t *testing.T) {
	m := openmpi5(t)
	ctx, cancel := context.WithTimeout(t.Context(), jobTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--kill-child=KILL", at(t, "outrigger"), "run", "-n", "2", "--pods", "2", "--mpi", "auto", "--", m.build(t, "waits"), "missing message", "60")
	cmd.Env = append(os.Environ(), m.env...)
	had, err := filepath.Glob("/dev/shm/outrigger-pmix-*")
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var killed []string
	for len(killed) < 4 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if killed, err = filepath.Glob("/dev/shm/outrigger-pmix-*"); err != nil {
			t.Fatal(err)
		}
		killed = slices.DeleteFunc(killed, func(path string) bool { return slices.Contains(had, path) })
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if len(killed) < 4 {
		t.Fatalf("a job of two pods has %q in /dev/shm, want a folder and its lock for each", killed)
	}
	job{ranks: 2, pods: 1, env: m.env}.mustRun(t, "checked over 2 ranks", m.build(t, "check"))
	for _, path := range killed {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}
