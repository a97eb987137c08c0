//go:build rdma && rdmaguest

package verbs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const enters = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/"

var called = regexp.MustCompile(`id: sys_(\S+) .*hitcount: +(\d+)`)

// systemCalls counts the system calls of the whole machine while do runs, by trace events
// of the kernel.
func systemCalls(t *testing.T, do func()) map[string]int {
	t.Helper()
	if err := unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		t.Fatal(err)
	}
	trigger := func(what string) {
		if err := os.WriteFile(enters+"trigger", []byte(what), 0); err != nil {
			t.Fatal(err)
		}
	}
	trigger("hist:keys=id.syscall")
	do()
	b, err := os.ReadFile(enters + "hist")
	if err != nil {
		t.Fatal(err)
	}
	trigger("!hist:keys=id.syscall")
	calls := map[string]int{}
	for _, m := range called.FindAllStringSubmatch(string(b), -1) {
		if calls[m[1]], err = strconv.Atoi(m[2]); err != nil {
			t.Fatal(err)
		}
	}
	return calls
}

// perMessage returns the calls of more messages minus those of fewer, as text: the sum,
// and each call that occurs at least once in a hundred messages.
func perMessage(fewer, more map[string]int, messages int) string {
	var list []string
	all := 0
	for _, name := range slices.Sorted(maps.Keys(more)) {
		n := more[name] - fewer[name]
		if all += n; n*100 >= messages {
			list = append(list, fmt.Sprintf("%s %.3f", name, float64(n)/float64(messages)))
		}
	}
	return fmt.Sprintf("%.3f, of which %s", float64(all)/float64(messages), strings.Join(list, ", "))
}

// TestEngineCalls prints the system calls of a message, by two engines and by
// ib_write_lat.
func TestEngineCalls(t *testing.T) {
	two := pairOfRigs(t, settings[0])
	value := uint64(0)
	messages := func(n int) func() {
		return func() {
			for range n / 2 {
				value++
				one(&two, 0, value)
				value++
				one(&two, 1, value)
			}
		}
	}
	const few, many = 200, 5200
	t.Logf("system calls of a message: engine, %s: %s", settings[0], perMessage(systemCalls(t, messages(few)), systemCalls(t, messages(many)), many-few))
	for _, r := range two {
		r.close(t)
	}
	lat := func(rounds int) func() {
		return func() {
			line := []string{"-d", "rxe0", "-x", "1", "-F", "-s", "8", "-n", strconv.Itoa(rounds)}
			server := exec.Command("ib_write_lat", line...)
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			err := errors.New("not tried")
			for range 100 { // it takes a while to listen
				if err = exec.Command("ib_write_lat", append(line, "10.8.0.1")...).Run(); err == nil {
					break
				}
			}
			if err := errors.Join(err, server.Wait()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Both sides send the same number of messages.
	t.Logf("system calls of a message: ib_write_lat: %s", perMessage(systemCalls(t, lat(100)), systemCalls(t, lat(1100)), 2000))
}
