//go:build rdmavm

package rdmavm

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

const refusal = "an application's memory cannot be registered"

// TestReuse: buffers that are sent from again and again are registered once each and
// gathered from, by the real library and the kernel's real verbs. Registrations give
// way to others under a budget of 1 MiB. Where the kernel refuses one (memlock), what
// does not fit is copied, which the log says once. Every word is right in all of it.
func TestReuse(t *testing.T) {
	c := newCast(t)
	step := func(name string, memlock uint64, tune func(*bootstrap.Document), args ...string) {
		c.document(plan.Step{Name: name, Program: append([]string{"reuse"}, args...), Devices: granted, Memlock: memlock}, 1, func(d *bootstrap.Document) {
			required(&d.Tuning)
			if tune != nil {
				tune(d)
			}
		})
	}
	// Emulation copies faster than it finds a buffer, and the link measures that: by
	// itself it would copy, as it should.
	always := func(d *bootstrap.Document) { d.Tuning.Reuse = bootstrap.ReuseAlways }
	step("reuse", 0, always, "-rounds", "20")
	step("copied", 0, func(d *bootstrap.Document) { d.Tuning.Reuse = bootstrap.ReuseOff }, "-rounds", "4")
	step("budget", 0, func(d *bootstrap.Document) { always(d); d.Memory.PinnedBytes = 1 << 20 }, "-rounds", "4", "-large", "32")
	step("memlock", memlock, always, "-rounds", "4", "-large", "32")
	out := c.play("reuse", 6*time.Minute)
	for i := range out {
		for _, s := range c.steps {
			part := stepOf(t, out[i].Output, s.Name)
			count := func(name string) float64 { return figure(t, part, " "+name+`=(\d+)`) }
			made, evicted, refused := count("made"), count("evictions")+count("evictionsForPeers"), count("refusals")+count("refusalsForPeers")
			t.Logf("machine %d, %s: %.0f registrations, %.0f bytes gathered, %.0f copied, %.0f evictions, %.0f refusals", i, s.Name, made, count("gathered"), count("copied"), evicted, refused)
			warnings := 0
			switch s.Name {
			case "reuse": // what finds no credit goes by rendezvous, from the same registrations or others
				if i == 0 && (made != 8 || count("copied") != 0 || count("gathered") < 8*8000) {
					t.Errorf("8 buffers are not registered once each, and all that is sent eagerly gathered from them")
				}
			case "copied":
				if count("gathered") != 0 {
					t.Errorf("machine %d: bytes are gathered without reuse", i)
				}
			case "budget":
				if evicted == 0 {
					t.Errorf("machine %d: no eviction with 2 MiB of buffers under a budget of 1 MiB", i)
				}
			case "memlock":
				warnings = 1
				if refused == 0 {
					t.Errorf("machine %d: the kernel has refused nothing under memlock", i)
				}
			}
			if n := strings.Count(part, refusal); n != warnings {
				t.Errorf("machine %d, %s: %d warnings of refusals, want %d", i, s.Name, n, warnings)
			}
			if i == 1 && !strings.Contains(part, "every word right") {
				t.Errorf("%s: not every word was checked", s.Name)
			}
		}
	}
}

// memlock is the locked memory of a sidecar that can start with it, and has not enough
// for 2 MiB of its rank's.
const memlock = 5 << 19

// TestReuseGain: the patterns of `outrigger bench reuse` over RDMA, copied (off), by the
// link's own decision (auto) and gathered from the first use on (always), by turns. What
// emulation makes of speed is no card's; a ratio within one turn says what a decision
// adds or spares here. For a quiet machine.
func TestReuseGain(t *testing.T) {
	c := newCast(t)
	out := filepath.Join(c.dir, "outrigger")
	if err := Compile(out, "../../sidecar/cmd/outrigger"); err != nil {
		t.Fatal(err)
	}
	c.files = append(c.files, out)
	variants := []string{bootstrap.ReuseOff, bootstrap.ReuseAuto, bootstrap.ReuseAlways}
	for turn := range *turns {
		for _, v := range variants {
			program := []string{"outrigger", "bench-rank", "--quick", "--peer", "outrigger-rdma", "--tests", "reuse", "--variant", v}
			c.job(plan.Step{Name: fmt.Sprint(v, turn), Program: program, Devices: granted}, 1, func(tune *bootstrap.Tuning) {
				required(tune)
				tune.Reuse = v
			})
		}
	}
	said := c.play("reuse-gain", time.Duration(len(c.steps))*2*time.Minute)[0].Output
	type figure struct {
		Op, Variant string
		Bytes       int
		US          float64
	}
	var order []string
	took := map[string]map[string][]float64{}
	for _, line := range strings.Split(said, "\n") {
		var f figure
		if at := strings.Index(line, "{\"peer\""); at < 0 || json.Unmarshal([]byte(line[at:]), &f) != nil {
			continue
		}
		key := fmt.Sprintf("%-16s %5d", f.Op, f.Bytes)
		if took[key] == nil {
			order, took[key] = append(order, key), map[string][]float64{}
		}
		took[key][f.Variant] = append(took[key][f.Variant], f.US)
	}
	if len(order) == 0 {
		t.Fatal("nothing was measured")
	}
	for _, key := range order {
		line := key
		for _, v := range variants {
			line += fmt.Sprintf("  %s %.0f us", v, middle(took[key][v]))
		}
		for _, v := range variants[1:] {
			var gains []float64
			for i := range min(len(took[key]["off"]), len(took[key][v])) {
				gains = append(gains, 100*(1-took[key][v][i]/took[key]["off"][i]))
			}
			line += fmt.Sprintf("  %s gains %.1f %%", v, middle(gains))
		}
		t.Log(line)
	}
}

// turns is how often the settings of TestReuseGain take turns.
var turns = flag.Int("rdma.turns", 3, "turns of the settings in TestReuseGain")

func middle(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
