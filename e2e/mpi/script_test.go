//go:build mpi

package mpi

import (
	"fmt"
	"strings"
	"testing"
)

// script runs a shell script with a program's mpirun as $R and the program as $P, and checks that
// the program has run all times over all ranks, and alone times over one.
func (j job) script(t *testing.T, m *implementation, all, alone int, text string) {
	t.Helper()
	j.env = append(append(j.env, m.env...), "R="+m.starter(t), "P="+m.build(t, "check"))
	out := j.mustRun(t, "", "sh", "-c", text)
	for says, want := range map[string]int{fmt.Sprintf("checked over %d ranks", j.ranks): all, "checked over 1 ranks": alone} {
		if n := strings.Count(out, says); n != want {
			t.Errorf("%q %d times, want %d\n%s", says, n, want, out)
		}
	}
}

// TestScripts checks ranks that are scripts and run one MPI program after the other, with pauses in
// between, in pods of one rank and of several.
func TestScripts(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			job{ranks: 4, pods: 2}.script(t, &m, 2, 0, `$P && $P`)
			job{ranks: 3, pods: 3}.script(t, &m, 3, 0, `$P && sleep 0.$OMPI_COMM_WORLD_RANK && $P && $P`)
			job{ranks: 2, pods: 1}.script(t, &m, 1, 0, `set -u; export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK; exec $P`)
			windows := m.build(t, "signed")
			job{ranks: 4, pods: 2, env: append(m.env, "W="+windows)}.mustRun(t, "signed: 0", "sh", "-c", `$W && $W >/dev/null && $W`)
		})
	}
}

// TestScriptsAreCounted checks that a script has every variable by which an MPI's own launcher
// numbers the ranks, with the rank's numbers. The script stops at unset variables (set -u).
func TestScriptsAreCounted(t *testing.T) {
	const script = `set -eu
echo "rank $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE $PMI_RANK/$PMI_SIZE, in its pod $OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS $OMPI_COMM_WORLD_NODE_RANK"
exec $P`
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			out := job{ranks: 5, pods: 2, env: append(m.env, "P="+m.build(t, "check"))}.mustRun(t, "checked over 5 ranks", "sh", "-c", script)
			for rank, local := range []string{"0/3", "1/3", "2/3", "0/2", "1/2"} {
				if want := fmt.Sprintf("[%d] rank %[1]d/5 %[1]d/5, in its pod %s %[2]s %c\n", rank, local, local[0]); strings.Count(out, want) != 1 {
					t.Errorf("not once: %q\n%s", want, out)
				}
			}
		})
	}
}

// TestScriptFails checks the job's exit code if the second program of a script fails, or the script
// exits with a code.
func TestScriptFails(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			env := append(m.env, "P="+m.build(t, "check"))
			for text, want := range map[string]int{`$P; exit 3`: 3, `$P && (exit 4) && $P`: 4, `$P && kill -9 $$`: 137} {
				if code, out := (job{ranks: 2, pods: 2, env: env}).run(t, "sh", "-c", text); code != want {
					t.Errorf("%s: exit code %d, want %d\n%s", text, code, want, out)
				}
			}
		})
	}
}

// TestScriptEndsEarlier checks that if one rank's script runs one program fewer, the second program
// of the others ends with the reason and does not wait for that rank.
func TestScriptEndsEarlier(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			env := append(m.env, "P="+m.build(t, "check"))
			code, out := job{ranks: 4, pods: 2, env: env}.run(t, "sh", "-c", `$P && if [ $OMPI_COMM_WORLD_RANK != 3 ]; then $P; fi`)
			if code == 0 || strings.Count(out, "checked over 4 ranks") != 1 || !strings.Contains(out, "its process ended, and other ranks run another MPI program") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestScriptsOfMPIRun checks a script that is started once and calls mpirun twice, and an MPI program
// without mpirun, or with mpirun -n 1, which is a job of one rank.
func TestScriptsOfMPIRun(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			j := job{ranks: 4, pods: 2, env: []string{"OUTRIGGER_MPIRUN=1"}}
			j.script(t, &m, 2, 0, `$R -n 4 $P && $R -n 4 $P`)
			j.script(t, &m, 1, 1, `$P && $R -n 4 $P`)
			j.script(t, &m, 2, 2, `$R -n 1 $P && $R -n 4 $P && $R -n 1 $P && $R -n 4 $P`)
		})
	}
}

// TestMPIRunOfSomeRanks checks that an mpirun that starts only some of the job's ranks is refused
// before its first message.
func TestMPIRunOfSomeRanks(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			env := append(m.env, "OUTRIGGER_MPIRUN=1", "R="+m.starter(t), "P="+m.build(t, "check"))
			code, out := job{ranks: 4, pods: 2, env: env}.run(t, "sh", "-c", `$R -n 4 $P && $R -n 2 $P`)
			if code == 0 || !strings.Contains(out, "mpirun has started 2 ranks of the job's 4: it has to start 4 ranks (-n 4), or one (-n 1)") {
				t.Errorf("exit code %d\n%s", code, out)
			}
		})
	}
}

// TestScriptMistakes checks that the remedy of a script's mistake is printed, once, if its programs
// end with errors that do not name it, and that a correct script gets no hint.
func TestScriptMistakes(t *testing.T) {
	const often, closed = "run the script once, by OUTRIGGER_MPIRUN=1", "set OUTRIGGER_PMI=port in the job's environment"
	m := mpich(t)
	env := append([]string{"R=" + m.starter(t), "P=" + m.build(t, "check")}, m.env...)
	const subprocess = `exec /usr/bin/python3 -c 'import os, subprocess, sys; sys.exit(subprocess.call([os.environ["P"]]))'`
	for text, want := range map[string]string{
		`$R -n 2 hostname`:                     often,
		`$R -n 1 true && $P`:                   "",
		subprocess:                             closed,
		`P=/bin/true; export P; ` + subprocess: "",
	} {
		code, out := job{ranks: 2, pods: 2, env: env}.run(t, "sh", "-c", text)
		for _, remedy := range []string{often, closed} {
			if strings.Contains(out, remedy) != (remedy == want) {
				t.Errorf("%s: exit code %d, %q\n%s", text, code, remedy, out)
			}
		}
		if want == often && strings.Count(out, often) != 1 {
			t.Errorf("%s: more than once\n%s", text, out)
		}
		if (want != "" && want != often) != (code != 0) {
			t.Errorf("%s: exit code %d\n%s", text, code, out)
		}
	}
	job{ranks: 2, pods: 2, env: append(env, "OUTRIGGER_PMI=port")}.mustRun(t, "checked over 2 ranks", "sh", "-c", subprocess)
	if out := (job{ranks: 2, pods: 2, env: append(env, "OUTRIGGER_MPIRUN=1")}).mustRun(t, "checked over 2 ranks", "sh", "-c", `$R -n 2 $P`); strings.Contains(out, often) {
		t.Errorf("the script runs once\n%s", out)
	}
}
