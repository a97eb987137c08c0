//go:build mpi

package mpi

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestStepsTakeTurns checks that the thread that makes steps is not in the MPI while the program is.
// A tool between the library of steps and the MPI observes both.
func TestStepsTakeTurns(t *testing.T) {
	for _, m := range all(t) {
		program, tool := m.build(t, "turns"), m.build(t, "between", "-shared", "-fPIC")
		script := fmt.Sprintf("LD_PRELOAD=$LD_PRELOAD:%s exec %s", tool, program)
		for _, pods := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/pods=%d", m.name, pods), func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"=all")
				out := job{ranks: 2, pods: pods, env: env}.mustRun(t, "between: some steps", "/bin/sh", "-c", script)
				if strings.Count(out, "both inside 0 times") != 2 {
					t.Error(out)
				}
			})
		}
	}
}

// TestStepsLeaveLevels checks that a program gets the thread level that it asks for, or the level
// that the stepping thread needs if that is higher, and that programs that it starts do not inherit
// the variables for that.
func TestStepsLeaveLevels(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "levels")
		for asked, given := range map[string]int{"init": 2, "1": 2, "2": 2, "3": 3} {
			t.Run(m.name+"/"+asked, func(t *testing.T) {
				env := append(m.env, names.EnvMPIProgress+"=all")
				want := fmt.Sprintf("rank 1: level %d, %d when asked, its programs get none", given, given)
				if out := (job{ranks: 2, pods: 2, env: env}).mustRun(t, want, program, asked); strings.Contains(out, "steps of the MPI's own do not") {
					t.Error(out)
				}
			})
		}
	}
}

// local matches functions of MPI that access no operation in progress, or that may be called before
// MPI_Init and after MPI_Finalize (clientlib/c/steps/calls.h).
var local = regexp.MustCompile(`_(c2f08|f082c|f082f|f2f08|F90)$|_FN$|_FN_|` +
	`^P?MPI_(T_|Aint_|Abi_|Status_|Error_|Wti|Get_(count|elements|address|version|library_version|processor_name|hw_resource_info)|` +
	`(Init|Init_thread|Finalize|Initialized|Finalized|Query_thread|Is_thread_main|Pcontrol|Abort|Address|Comm_rank|Comm_size)$)`)

// calls returns the functions of MPI that a library exports.
func calls(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	mpi := regexp.MustCompile(`^P?MPI_[A-Z][a-z]`)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && mpi.MatchString(s.Name) {
			has[s.Name] = true
		}
	}
	return has
}

// TestStepsStandBeforeAll checks that the library of steps wraps every function of every MPI that
// local does not match.
func TestStepsStandBeforeAll(t *testing.T) {
	before := calls(t, at(t, "c/liboutrigger-steps.so"))
	for _, m := range all(t) {
		found := 0
		for name := range calls(t, m.library) {
			switch {
			case before[name]:
				found++
			case !local.MatchString(name):
				t.Errorf("%s: nothing is before %s: add it to clientlib/c/steps/calls.h", m.name, name)
			}
		}
		if found < 300 {
			t.Errorf("%s: %s has %d calls", m.name, m.library, found)
		}
	}
}
