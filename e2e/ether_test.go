package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEther runs programs whose small messages go by UDP and whose large ones go by TCP, with
// and without encryption, or are pulled by UDP, and checks their results and the report of
// both paths.
func TestEther(t *testing.T) {
	for name, flags := range map[string][]string{"plain": nil, "encrypted": {"--encrypt"}, "pulled": {"--large-path", "pull"}, "measured": {"--large-path", "auto", "--encrypt"}} {
		t.Run(name, func(t *testing.T) {
			for _, program := range []struct {
				args  []string
				large bool // it sends messages that are larger than a packet
			}{{[]string{"npb", "-class", "S", "cg"}, false}, {[]string{"npb", "-class", "S", "is"}, true}, {[]string{"npb", "-class", "S", "ft"}, true}, {[]string{"tour"}, true}} {
				args := append([]string{filepath.Join(bin, program.args[0])}, program.args[1:]...)
				code, out := startWith(t, append([]string{"--transport", "ether"}, flags...), 4, 2, args...).wait()
				if code != 0 {
					t.Fatalf("%v: exit code %d\n%s", program.args, code, out)
				}
				m := regexp.MustCompile(`between pods: ([1-9][0-9.]*) [KM]iB by udp, ([0-9.]+) [KM]?i?B by tcp`).FindStringSubmatch(out)
				if m == nil || program.large && (name == "plain" || name == "encrypted") && m[2] == "0" {
					t.Errorf("%v: the report has %q\n%s", program.args, m, out)
				}
				// A trial that fails on a busy machine leaves TCP to the next connection.
				if x := strings.Contains(out, "large payloads, by pod and peer: "); x && name != "measured" {
					t.Errorf("%v: paths were compared\n%s", program.args, out)
				}
			}
		})
	}
}

// TestNPBOverEther compares the results of the kernels with the values that NPB publishes:
// with small messages by UDP and large ones by TCP, and with all of them by UDP.
func TestNPBOverEther(t *testing.T) {
	for name, flags := range map[string][]string{"plain": nil, "pulled": {"--rendezvous", "getcqe"}} {
		for _, kernel := range []string{"cg", "ep", "ft", "is", "lu", "mg"} {
			t.Run(name+"/"+kernel, func(t *testing.T) {
				code, out := startWith(t, append([]string{"--transport", "ether"}, flags...), 4, 4, filepath.Join(bin, "npb"), "-class", "S", kernel).wait()
				if code != 0 || !strings.Contains(out, "VERIFICATION SUCCESSFUL") {
					t.Fatalf("exit code %d\n%s", code, out)
				}
				if !regexp.MustCompile(`between pods: [1-9][0-9.]* [KM]?i?B by udp`).MatchString(out) {
					t.Errorf("the report has no bytes by UDP:\n%s", out)
				}
			})
		}
	}
}
