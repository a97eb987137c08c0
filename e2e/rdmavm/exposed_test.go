//go:build rdmavm

package rdmavm

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

var mischief = regexp.MustCompile(`(?m)^[1-9]\d* (registrations ended|queue pairs destroyed)`)

// TestExposed: ranks register their private memory on contexts that their sidecars have opened
// for them, and messages between such buffers are reads by the device, also while a child
// shares the pages. The kernel counts the pages as pinned until the program has freed the
// exposure. Memory that cannot be exposed (the job does not allow it, or memlock is too small)
// is copied, with an error that has the reason. If a rank ends its registrations or destroys
// the queue pairs of its context without the library, its messages are copied and right, and
// the messages of its neighbour in the pod are not affected.
func TestExposed(t *testing.T) {
	c := newCast(t)
	ranks := 1
	step := func(name, exposure string, status int, args ...string) {
		c.job(plan.Step{Name: name, Program: append([]string{"exposed"}, args...), Devices: granted, Status: status}, ranks, func(tune *bootstrap.Tuning) {
			required(tune)
			tune.Exposure = exposure
		})
	}
	step("both", bootstrap.ExposureAllowed, 0)
	step("one", bootstrap.ExposureAllowed, 0, "-expose", "0", "-alloc", "1")
	step("denied", "", 0, "-want", "the job does not allow it", "-rounds", "2")
	step("memlock", bootstrap.ExposureAllowed, 0, "-memlock", "65536", "-want", "RLIMIT_MEMLOCK (ulimit -l) of this process is 65536 bytes: raise it", "-rounds", "2")
	step("spoilt", bootstrap.ExposureAllowed, 0, "-spoil", "5")
	step("attacked", bootstrap.ExposureAllowed, 0, "-attack", "5")
	step("forked", bootstrap.ExposureAllowed, 0, "-fork", "3")
	step("killed", bootstrap.ExposureAllowed, -1, "-vanish", "5")
	step("midway", bootstrap.ExposureAllowed, -1, "-midway")
	ranks = 2
	step("neighbour", bootstrap.ExposureAllowed, 0, "-spoil", "5")
	ranks = 1
	step("after", bootstrap.ExposureAllowed, 0, "-rounds", "3")
	for i, o := range c.play("exposed", 10*time.Minute) {
		for _, s := range c.steps {
			part := stepOf(t, o.Output, s.Name)
			count := func(name string) float64 {
				if s.Name == "denied" {
					return 0
				}
				return figure(t, part, `registered" .*`+name+`=(\d+)`)
			}
			reads, bytes := count("reads"), count("bytes")
			t.Logf("machine %d, %s: %.0f reads of %.0f bytes, %.0f queue pairs failed", i, s.Name, reads, bytes, count("faults"))
			right := strings.Count(part, "every word right")
			switch s.Name {
			case "both", "one", "forked", "after":
				sent := 20
				if s.Name == "after" {
					sent = 3
				}
				// The first message requests the queue pair. Messages are copied until the queue pair
				// exists, which takes seconds on a busy host.
				if reads < float64(sent/2) || bytes != reads*800024 {
					t.Errorf("machine %d, %s: %.0f of %d messages were read by the device, %.0f bytes", i, s.Name, reads, sent, bytes)
				}
				if count("faults") != 0 || right != 1 {
					t.Errorf("machine %d, %s: %.0f queue pairs have failed, %d ranks have all words", i, s.Name, count("faults"), right)
				}
				if s.Name == "forked" && strings.Count(part, "its child has ended well") != 1 {
					t.Errorf("machine %d: its rank has not forked", i)
				}
				if (i == 0 || s.Name != "one") && !strings.Contains(part, "VmPin is back to 0 kB") {
					t.Errorf("machine %d, %s: pages stay pinned", i, s.Name)
				}
			case "denied", "memlock":
				if right != 1 || reads != 0 || strings.Count(part, "refused as it should be") != 1 {
					t.Errorf("machine %d, %s: %.0f reads, %d ranks have all words", i, s.Name, reads, right)
				}
			case "neighbour": // at most five messages of the rank with the destroyed queue pair were read; the other messages are its neighbour's
				if right != 2 || bytes < (5+5)*800024 {
					t.Errorf("machine %d, %s: %.0f bytes were read by the device, %d ranks have all words", i, s.Name, bytes, right)
				}
			case "midway":
				if i == 0 && reads == 0 {
					t.Errorf("%s: the device has read nothing", s.Name)
				}
			case "spoilt", "attacked":
				if right != 1 || count("faults") == 0 {
					t.Errorf("machine %d, %s: not every word is right, or no queue pair has failed", i, s.Name)
				}
				if i == 0 && !mischief.MatchString(part) {
					t.Errorf("%s: nothing was ended behind the library's back", s.Name)
				}
			}
		}
	}
}
