//go:build mpi

package mpi

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "conformance":
			os.Exit(play())
		case olderCommand, betweenCommand:
			os.Exit(older(os.Args[1:]))
		}
	}
	os.Exit(m.Run())
}

// clients returns scripts that run the C client, the Go client, or one in the lower and the other in
// the upper half of four ranks.
func clients(t *testing.T, c string) map[string][]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	goRank := self + " conformance"
	halves := func(lower, upper string) []string {
		return []string{"/bin/sh", "-c", fmt.Sprintf("if [ $OUTRIGGER_RANK -lt 2 ]; then exec %s; else exec %s; fi", lower, upper)}
	}
	return map[string][]string{"C": {c}, "Go": {self, "conformance"}, "C leads Go": halves(c, goRank), "Go leads C": halves(goRank, c)}
}

// TestConformance plays the same scenarios with the C client, the Go client, and one with the other.
func TestConformance(t *testing.T) {
	c := at(t, "c/conformance")
	for what, program := range clients(t, c) {
		for _, pods := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/pods=%d", what, pods), func(t *testing.T) {
				out := job{ranks: 4, pods: pods, mpi: "none"}.mustRun(t, "rank 3 played 12 scenarios", program...)
				if n := strings.Count(out, "played 12 scenarios"); n != 4 {
					t.Errorf("%d ranks have played\n%s", n, out)
				}
			})
		}
	}
	for _, own := range []string{"foreseen", "fleeting"} {
		job{ranks: 4, pods: 2, mpi: "none"}.mustRun(t, "played", c, own)
	}
}

// sanitized builds the C client, and more targets of hack/c, with a sanitizer, and returns the
// folder.
func sanitized(t *testing.T, sanitizer string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "hack", "c"), more...)
	cmd.Env = append(os.Environ(), "OUT="+dir, "CFLAGS=-fsanitize="+sanitizer+" -fno-sanitize-recover=all")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestSanitized plays the scenarios with the C client, and polls in several threads, under the
// compiler's sanitizers, which end the program at the first error.
func TestSanitized(t *testing.T) {
	for _, s := range []string{"address,undefined", "thread"} {
		t.Run(s, func(t *testing.T) {
			dir := sanitized(t, s)
			job{ranks: 2, pods: 2, mpi: "none"}.mustRun(t, "rank 1 played 12 scenarios", filepath.Join(dir, "conformance"))
			if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "threads")).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestOldSystems checks that the libraries that programs load need only symbols of old versions of
// glibc, which all supported images have, and none of libfabric.
func TestOldSystems(t *testing.T) {
	for _, name := range []string{"liboutrigger-fi.so", "liboutrigger-alloc.so", "liboutrigger-steps.so", "liboutrigger-check.so", "liboutrigger-host.so", "libpmi.so", "outrigger-pmix"} {
		out, err := exec.CommandContext(t.Context(), "nm", "-D", "--undefined-only", at(t, "c", name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			symbol := strings.TrimSpace(line)
			_, version, ok := strings.Cut(symbol, "@GLIBC_2.")
			var minor int
			if _, err := fmt.Sscanf(version, "%d", &minor); ok && (err != nil || minor > 31) {
				t.Errorf("%s has %s, which glibc 2.31 does not have", name, symbol)
			}
			if strings.Contains(symbol, " fi_") || strings.Contains(symbol, "FABRIC_") {
				t.Errorf("%s needs libfabric: %s", name, symbol)
			}
		}
	}
}

// goldenBytes returns the hexadecimal digits of a golden file of api/shm.
func goldenBytes(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "api", "shm", "testdata", name+".golden.hex"))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.Join(strings.Fields(line), ""))
		}
	}
	return digits.String()
}

// TestPlaceTold checks that a C client reports correctly whether it waits, in the cases of
// clientlib/c/test/activity.c. Time that a host steals from this machine's CPUs looks like
// computation, in different cases of different runs: only a case that is wrong in each run fails.
func TestPlaceTold(t *testing.T) {
	var wrong map[string]bool
	for range 8 {
		out, err := exec.CommandContext(t.Context(), at(t, "c/activity")).CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "activity: ") {
			t.Fatalf("%v\n%s", err, out)
		}
		now := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			if name := strings.TrimSpace(line); wrong == nil || wrong[name] {
				now[name] = true
			}
		}
		if wrong = now; len(wrong) == 0 {
			return
		}
	}
	t.Errorf("in each of eight runs: %q", slices.Sorted(maps.Keys(wrong)))
}

// TestEndedWhileStaging checks that a send whose sidecar ends while the message is being staged
// either fails or completes, and not both.
func TestEndedWhileStaging(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/ended")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChunksForWhatMoves checks that matched large messages get chunks although others never match,
// and that all chunks are freed.
func TestChunksForWhatMoves(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/chunks")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFullRing checks that a full ring of submissions stops no thread that does not submit.
func TestFullRing(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/full")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTakenBeforeTheSleep checks that a thread does not sleep if another thread has processed the
// completion that it waits for.
func TestTakenBeforeTheSleep(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/taken")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPollsInVain checks that polls of the C client that find nothing acquire no lock and do not call
// the kernel for their first 20 us, and that they see what has ended meanwhile.
func TestPollsInVain(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/vain")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCrowded checks that a waiting thread sleeps if another thread computes on its CPU.
func TestCrowded(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/shared_cpu")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPieces checks that the C client allocates no memory of its arena that the sidecar has not
// allocated.
func TestPieces(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), at(t, "c/pieces")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestGolden checks that the C client writes the bytes of the contract's golden files, except that
// its Hello names fewer features, and that the first four bytes of an entry belong to the ring.
func TestGolden(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), at(t, "c/golden")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		name, got, _ := strings.Cut(strings.TrimSpace(line), " ")
		want := goldenBytes(t, name)
		if strings.HasPrefix(name, "descriptor") {
			want = want[2*4:]
		} else {
			got, want = got[:2*8]+got[2*16:], want[:2*8]+want[2*16:]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d golden files were compared\n%s", seen, out)
	}
}

// TestCLastError checks that the verdict of a C program that exits after an error, without
// outrigger_close, has the call, the peer and the reason in addition to the exit code.
func TestCLastError(t *testing.T) {
	for mistake, want := range map[string]string{
		"truncated": "rank 1 (pod 1) exited with code 3: recv with rank 0 tag 7 (100 bytes): the message is longer than the buffer",
		"argument":  "rank 1 (pod 1) exited with code 3: recv with rank 9 tag 7 (0 bytes): invalid argument",
	} {
		code, out := job{ranks: 2, pods: 2, mpi: "none"}.run(t, at(t, "c/mistaken"), mistake)
		if code == 0 || !strings.Contains(out, "job failed: "+want) {
			t.Errorf("%s: code %d, want %q in\n%s", mistake, code, want, out)
		}
	}
}
