package e2e

import (
	"path/filepath"
	"regexp"
	"testing"
)

// TestEther runs programs whose small messages go by UDP and whose large ones go by TCP, with
// and without encryption, and checks their results and the report of both paths.
func TestEther(t *testing.T) {
	for name, flags := range map[string][]string{"plain": nil, "encrypted": {"--encrypt"}} {
		t.Run(name, func(t *testing.T) {
			for _, program := range [][]string{{"npb", "-class", "S", "cg"}, {"npb", "-class", "S", "is"}, {"npb", "-class", "S", "ft"}, {"tour"}} {
				program[0] = filepath.Join(bin, program[0])
				code, out := startWith(t, append([]string{"--transport", "ether"}, flags...), 4, 2, program...).wait()
				if code != 0 {
					t.Fatalf("%v: exit code %d\n%s", program, code, out)
				}
				// Both pods have sent something by both paths.
				if !regexp.MustCompile(`between pods: [1-9][0-9.]* [KM]iB by udp, [1-9][0-9.]* [KM]iB by tcp`).MatchString(out) {
					t.Errorf("%v: the report does not have both paths\n%s", program, out)
				}
			}
		})
	}
}
