//go:build mpi

package mpi

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStdin checks that rank 0 of an MPI program reads all bytes of the standard input, and the other
// ranks none, whether the launcher or the program's own mpirun starts it.
func TestStdin(t *testing.T) {
	// More bytes than a pipe can buffer, of all values.
	deck := make([]byte, 3<<16+13)
	random := rand.NewChaCha8([32]byte{})
	if _, err := random.Read(deck); err != nil {
		t.Fatal(err)
	}
	for _, m := range all(t) {
		program := m.build(t, "stdin")
		check := func(t *testing.T, deck []byte, line ...string) {
			t.Helper()
			sum := fnv.New64a()
			_, _ = sum.Write(deck) // never fails
			want := fmt.Sprintf("stdin: rank 0 has read %d bytes with the sum %x\n", len(deck), sum.Sum64())
			j := job{ranks: 4, pods: 2, env: m.env, stdin: bytes.NewReader(deck)}
			if out := j.mustRun(t, want, line...); !strings.Contains(out, "stdin: the others have read 0 bytes\n") {
				t.Error(out)
			}
		}
		t.Run(m.name+"/launcher", func(t *testing.T) { check(t, deck, program) })
		t.Run(m.name+"/script", func(t *testing.T) { check(t, deck, "sh", "-c", "exec "+program) })
		t.Run(m.name+"/mpirun", func(t *testing.T) {
			line := []string{m.starter(t), "-n", "4", program}
			switch m.name { // docs/mpi.md describes what their mpiruns do to the standard input
			case "mpich":
				check(t, deck[:60000], append(line, "60000")...)
			case "intel":
				check(t, deck, append(line, fmt.Sprint(len(deck)))...)
			case "openmpi4":
				check(t, deck, line...)
			case "openmpi5":
				check(t, deck[:4000], append(line, "4000")...)
			}
		})
	}
}
