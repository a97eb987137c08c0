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

// TestStepsTakeTurns: the thread that takes an MPI's steps is not in it while the program is,
// as a tool between them and the MPI sees it.
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

// TestStepsLeaveLevels: a program has the level of threads that it asks for, or what the other
// thread needs if that is more, and what it starts is not told of it.
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

// local are functions of MPI that have nothing to do with what is under way, or that may be
// called before and after it (clientlib/c/steps/calls.h).
var local = regexp.MustCompile(`_(c2f08|f082c|f082f|f2f08|F90)$|_FN$|_FN_|` +
	`^P?MPI_(T_|Aint_|Abi_|Status_|Error_|Wti|Get_(count|elements|address|version|library_version|processor_name|hw_resource_info)|` +
	`(Init|Init_thread|Finalize|Initialized|Finalized|Query_thread|Is_thread_main|Pcontrol|Abort|Address|Comm_rank|Comm_size)$)`)

// calls are the functions of MPI that a library has.
func calls(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was read
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

// TestStepsStandBeforeAll: the library of steps is before every call of every MPI that is
// not known to be local.
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
