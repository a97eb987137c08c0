//go:build rdmavm

package rdmavm

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

// The engine is compared with perftest without other processes: the thread that runs the engine's
// turns also uses the rank's rings, as perftest's thread uses its buffer.

var profile = flag.String("rdma.profile", "", "TestEngineCost: write where the time of a longer run went to this file, as go test -cpuprofile does")

// TestEngineCost measures the parts of the cost of 8 bytes, in a machine whose clock counts
// instructions: perftest's requests alone, the link, and the engine with each eager channel.
func TestEngineCost(t *testing.T) {
	if *profile == "" {
		insideOf(t, "engine-cost", "^TestEngineCost$", true)
		return
	}
	const name = "cpu.prof"
	out := insideLike(t, Run{Name: "engine-cost", Counted: true}, "^TestEngineCost$", "-verbs.messages=100000", "-test.cpuprofile", path.Join(job.Host, job.Kept, name))
	raw, err := os.ReadFile(filepath.Join(out[0].Dir, "share", job.Kept, name))
	if err == nil {
		err = os.WriteFile(*profile, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEngineCalls counts the system calls that engines and ib_write_lat make for a message, in a
// machine with two processors.
func TestEngineCalls(t *testing.T) {
	insideLike(t, Run{Name: "engine-calls", TSC: true}, "^TestEngineCalls$")
}

// TestEngineLatency compares engines with ib_write_lat in one machine with two processors and a
// process on each. Before that, it measures the same with one thread.
func TestEngineLatency(t *testing.T) {
	insideLike(t, Run{Name: "engine-latency", TSC: true}, "^TestEngine(Cost|Latency)$")
}

// TestEngineYardstick compares engines with ib_write_lat between two machines, as TestYardstick
// compares whole jobs.
// The monitor of the Go runtime, which wakes about once in each round trip, is not the main
// cause of the spread: with a monitor that looks every 10 ms, three turns had 1.39 to 1.54.
func TestEngineYardstick(t *testing.T) {
	c := newCast(t)
	c.tsc = true
	test := filepath.Join(c.dir, "verbs.test")
	if err := Compile(test, "../../sidecar/internal/link/verbs", "rdma", "rdmaguest"); err != nil {
		t.Fatal(err)
	}
	c.files = append(c.files, test)
	at := job.Address(0) + ":7000"
	line := []string{"verbs.test", "-test.v", "-test.run", "^TestEngineLatency$", "-verbs.turns", "1"}
	for i := range *turns {
		lat := []string{"ib_write_lat", "-s", "8", "-n", "1000", "-d", job.Device, "-x", "1", "-F"}
		c.steps = append(c.steps,
			plan.Step{Name: fmt.Sprint("write_lat", i), Commands: [][]string{lat, append(lat[:len(lat):len(lat)], job.Address(0))}},
			plan.Step{Name: fmt.Sprint("engine", i), Commands: [][]string{append(line[:len(line):len(line)], "-verbs.listen", at), append(line[:len(line):len(line)], "-verbs.dial", at)}})
	}
	out := c.play("engine-yardstick", 5*time.Minute)[0].Output
	var order []string
	took, ratios := map[string][]float64{}, map[string][]float64{}
	for i := range *turns {
		lat := figure(t, stepOf(t, out, fmt.Sprint("write_lat", i)), `(?m)^ *8 +1000 +\S+ +\S+ +(\S+)`)
		took["ib_write_lat"] = append(took["ib_write_lat"], lat)
		for _, m := range regexp.MustCompile(`(engine, .*): (\S+) us`).FindAllStringSubmatch(stepOf(t, out, fmt.Sprint("engine", i)), -1) {
			us, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if len(took[m[1]]) == 0 {
				order = append(order, m[1])
			}
			took[m[1]], ratios[m[1]] = append(took[m[1]], us), append(ratios[m[1]], us/lat)
		}
	}
	if len(order) == 0 {
		t.Fatal("no engine was measured")
	}
	t.Logf("ib_write_lat: %.1f us (turns: %.1f)", middle(took["ib_write_lat"]), took["ib_write_lat"])
	for _, name := range order {
		t.Logf("%-30s %6.1f us, %.2f times ib_write_lat (turns: %.1f us, %.2f times)", name, middle(took[name]), middle(ratios[name]), took[name], ratios[name])
	}
}
