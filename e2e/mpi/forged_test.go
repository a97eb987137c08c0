//go:build mpi

package mpi

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// forged runs a program over libfabric, with the provider in dir, in a job with a rank that forges
// the provider's messages.
func forged(t *testing.T, pods int, dir string, flags ...string) {
	t.Helper()
	out := t.TempDir()
	compile := func(name string, more ...string) string {
		program := filepath.Join(out, name)
		args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../clientlib/c/include", "-o", program, "testdata/forged/" + name + ".c"}, flags...)
		if text, err := exec.CommandContext(t.Context(), "gcc", append(args, more...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return program
	}
	victim, forger := compile("victim", "-lfabric"), compile("forger", filepath.Join(dir, "liboutrigger.a"), "-pthread")
	script := fmt.Sprintf("[ $OUTRIGGER_RANK = 1 ] && exec %s; exec %s", forger, victim)
	env := []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=outrigger", "ASAN_OPTIONS=detect_leaks=0"}
	code, says := job{ranks: 2, pods: pods, mpi: "none", env: env, dir: t.TempDir()}.run(t, "/bin/sh", "-c", script)
	if code != 5 || !strings.Contains(says, "3 good messages are unhurt") || !strings.Contains(says, "forger: all is sent") {
		t.Errorf("exit code %d\n%s", code, says)
	}
}

// TestForged checks that forged messages of the provider's protocol do not damage messages or memory
// of other ranks.
func TestForged(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) { forged(t, pods, at(t, "c")) })
	}
	t.Run("sanitized", func(t *testing.T) {
		const sanitizer = "address,undefined"
		forged(t, 2, sanitized(t, sanitizer, "provider"), "-fsanitize="+sanitizer, "-fno-sanitize-recover=all")
	})
}
