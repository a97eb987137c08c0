//go:build mpi

package mpi

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestAllocModel compares the allocator for MPI programs with a model, plain and under the
// compiler's sanitizers.
func TestAllocModel(t *testing.T) {
	for name, flags := range map[string][]string{"plain": nil, "address": {"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}, "thread": {"-fsanitize=thread"}} {
		t.Run(name, func(t *testing.T) {
			const c = "../../clientlib/c"
			program := filepath.Join(t.TempDir(), "alloc")
			args := append([]string{"-std=c11", "-D_DEFAULT_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-DNAME(f)=alloc_##f", "-I" + c + "/alloc", "-I" + c + "/src", "-o", program, "-pthread", "testdata/alloc/alloc.c"}, flags...)
			sources, err := filepath.Glob(c + "/alloc/*.c")
			if err != nil || len(sources) == 0 {
				t.Fatalf("no sources: %v", err)
			}
			if out, err := exec.CommandContext(t.Context(), "gcc", append(args, sources...)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for range 5 {
				cmd := exec.CommandContext(t.Context(), program, fmt.Sprint(rand.Uint32()))
				cmd.Env = append(os.Environ(), "ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0", "TSAN_OPTIONS=allocator_may_return_null=1")
				if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "content with seed") {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// moved matches the report of a rank at its end, with OUTRIGGER_MPI_REPORT=1.
var moved = regexp.MustCompile(`rank \d+: bytes sent in place (\d+), copied (\d+); received in place (\d+), copied (\d+)`)

// traffic returns the sums over the reports of all ranks.
func traffic(t *testing.T, ranks int, out string) (inPlace, copied int) {
	t.Helper()
	all := moved.FindAllStringSubmatch(out, -1)
	if len(all) != ranks {
		t.Fatalf("%d of %d ranks report their traffic\n%s", len(all), ranks, out)
	}
	for _, m := range all {
		for i, text := range m[1:] {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				inPlace += n
			} else {
				copied += n
			}
		}
	}
	return inPlace, copied
}

// TestPlaced checks that large messages of an unmodified program, which allocates, reallocates and
// frees its buffers, are not copied with OUTRIGGER_MPI_ARENA=on, and are all copied without.
func TestPlaced(t *testing.T) {
	for _, m := range all(t) {
		program := m.build(t, "placed")
		for _, pods := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/pods=%d", m.name, pods), func(t *testing.T) {
				say := append(m.env, "OUTRIGGER_MPI_REPORT=1", "OUTRIGGER_MPI_ARENA=on")
				inPlace, copied := traffic(t, 2, job{ranks: 2, pods: pods, env: say}.mustRun(t, "placed over 2 ranks", program))
				if inPlace < 3*copied {
					t.Errorf("%d bytes in place, %d copied", inPlace, copied)
				}
			})
		}
		t.Run(m.name+"/off", func(t *testing.T) {
			inPlace, copied := traffic(t, 2, job{ranks: 2, pods: 2, env: append(m.env, "OUTRIGGER_MPI_REPORT=1")}.mustRun(t, "placed over 2 ranks", program))
			if inPlace != 0 || copied == 0 {
				t.Errorf("%d bytes in place, %d copied", inPlace, copied)
			}
		})
	}
}

// TestPlacedHPCC checks that Debian's HPC Challenge has the same results with its allocations in
// the arena, small ones included, and with an arena that has room for few.
func TestPlacedHPCC(t *testing.T) {
	for _, arena := range []string{"256MiB", "1MiB"} {
		t.Run("arena="+arena, func(t *testing.T) {
			out := challenge(t, "OUTRIGGER_MPI_ARENA=4KiB", "OUTRIGGER_MPI_REPORT=1", "OUTRIGGER_ARENA="+arena)
			if inPlace, _ := traffic(t, 4, out); inPlace == 0 {
				t.Errorf("no message was in place\n%s", out)
			}
		})
	}
}

// TestPlacedRefused checks the error for an invalid OUTRIGGER_MPI_ARENA.
func TestPlacedRefused(t *testing.T) {
	code, out := job{ranks: 1, pods: 1, env: []string{"OUTRIGGER_MPI_ARENA=yes"}}.run(t, "sh", "-c", "true")
	if code == 0 || !strings.Contains(out, "want on, off, or the smallest allocation") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
