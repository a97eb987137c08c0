//go:build rdmavm

package rdmavm

import (
	"cmp"
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

// TestReuse: buffers from which messages are sent repeatedly are registered once each, and the
// device reads them, with the real library and the kernel's real verbs. With a budget of 1 MiB,
// registrations replace others. If the kernel refuses a registration (memlock), the data is
// copied, which is logged once. A message of 20 MiB is sent in parts, whose registrations the
// next message uses again. Every word is right in all cases.
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
	// Emulation copies faster than it looks up a buffer. The link measures both, so that
	// it would copy by its own decision, which is right.
	always := func(d *bootstrap.Document) { d.Tuning.Reuse = bootstrap.ReuseAlways }
	step("reuse", 0, always, "-rounds", "20")
	step("copied", 0, func(d *bootstrap.Document) { d.Tuning.Reuse = bootstrap.ReuseOff }, "-rounds", "4")
	step("budget", 0, func(d *bootstrap.Document) { always(d); d.Memory.PinnedBytes = 1 << 20 }, "-rounds", "4", "-large", "32")
	step("memlock", memlock, always, "-rounds", "4", "-large", "32")
	step("parts", 0, always, "-small", "1", "-rounds", "1", "-huge", "3")
	out := c.play("reuse", 6*time.Minute)
	for i := range out {
		for _, s := range c.steps {
			part := stepOf(t, out[i].Output, s.Name)
			count := func(name string) float64 { return figure(t, part, " "+name+`=(\d+)`) }
			made, evicted, refused := count("made"), count("evictions")+count("evictionsForPeers"), count("refusals")+count("refusalsForPeers")
			t.Logf("machine %d, %s: %.0f registrations, %.0f bytes gathered, %.0f copied, %.0f evictions, %.0f refusals", i, s.Name, made, count("gathered"), count("copied"), evicted, refused)
			warnings := 0
			if most := max(count("limit"), count("limitForPeers")); s.Name == "budget" && most > 1<<20 {
				t.Errorf("machine %d: a limit of %.0f bytes under a budget of 1 MiB", i, most)
			}
			if s.Name != "memlock" && refused != 0 {
				t.Errorf("machine %d, %s: %.0f registrations refused, and nothing limits them", i, s.Name, refused)
			}
			switch s.Name {
			case "reuse": // a message without credit is sent by rendezvous, from the same registrations or from others
				if i == 0 && (made != 8 || count("copied") != 0 || count("gathered") < 8*8000) {
					t.Errorf("8 buffers are not registered once each, and all that is sent eagerly gathered from them")
				}
			case "copied":
				if count("gathered") != 0 || made != 0 {
					t.Errorf("machine %d: bytes are gathered without reuse", i)
				}
				if i == 0 && count("copied") == 0 {
					t.Error("no bytes are copied without reuse")
				}
			case "parts": // registrations of a message of 20 MiB: two, or three if the buffer begins late in a part of 8 MiB
				if made, forPeers := count("made"), count("madeForPeers"); i == 0 && made < 3 || i == 1 && (forPeers < 2 || forPeers > 3) {
					t.Errorf("machine %d: 20 MiB are sent from %.0f registrations, and written to %.0f, want 2 or 3", i, made-1, forPeers)
				}
			case "budget":
				// A large message's buffers are registered for their own side or for the peer,
				// depending on timing. The receiver's registrations may be halved until they
				// fit. The sender also has registrations of small buffers.
				if i == 0 && (evicted == 0 || count("gathered") == 0) {
					t.Error("with more than 2 MiB of buffers under a budget of 1 MiB nothing is evicted, or nothing gathered")
				}
			case "memlock":
				warnings = 1
				if refused == 0 {
					t.Errorf("machine %d: the kernel has refused nothing under memlock", i)
				}
				if i == 0 && (count("copied") == 0 || count("gathered") == 0) {
					t.Error("under memlock what fits is not gathered, or what does not fit is not copied")
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

// memlock is the limit of locked memory, in bytes, with which a sidecar can start but cannot
// register 2 MiB of its rank's memory.
const memlock = 5 << 19

// TestReuseGain runs the patterns of `outrigger bench reuse` over RDMA by turns: with copies (off),
// by the link's own decision (auto), and with registered buffers from the first use on (always).
// Both pods are in one machine whose clock counts instructions, so that the host's load is not
// measured. The times are not those of a card, and caches cost nothing there. The ratio within
// one turn shows the cost or the gain of a decision.
func TestReuseGain(t *testing.T) {
	variants := []string{bootstrap.ReuseOff, bootstrap.ReuseAuto, bootstrap.ReuseAlways}
	args := []string{"--tests", "reuse", "--trips", fmt.Sprint(*trips)}
	if *patterns != "" {
		args = append(args, "--patterns", *patterns)
	}
	figures := measured(t, "reuse-gain", variants, args, func(tune *bootstrap.Tuning, v string) { tune.Reuse = v })
	for _, key := range figures.order {
		took := figures.us[key]
		line := fmt.Sprintf("%-24s", key)
		for _, v := range variants {
			line += fmt.Sprintf("  %s %.1f us", v, middle(took[v]))
		}
		for _, v := range variants[1:] {
			var gains []float64
			for i := range min(len(took["off"]), len(took[v])) {
				gains = append(gains, 100*(1-took[v][i]/took["off"][i]))
			}
			line += fmt.Sprintf("  %s gains %.1f %% (%.1f to %.1f)", v, middle(gains), slices.Min(gains), slices.Max(gains))
		}
		t.Log(line)
	}
}

// TestExperiments runs the other experiments of the papers that `outrigger bench` has, over RDMA,
// in the same kind of machine.
func TestExperiments(t *testing.T) {
	for _, x := range []struct {
		test     string
		ranks    int
		variants []string
		tune     func(*bootstrap.Tuning, string)
	}{
		{"onesided", 1, []string{bootstrap.ReuseOff, bootstrap.ReuseAlways}, func(tune *bootstrap.Tuning, v string) { tune.Reuse = v }},
		{"channels", 1, channels, func(tune *bootstrap.Tuning, v string) { tune.Channel, tune.InOrder = v, true }},
		{"bowtie", 2, protocols, func(tune *bootstrap.Tuning, v string) { tune.Rendezvous, tune.InOrder = v, true }},
	} {
		t.Run(x.test, func(t *testing.T) {
			f := measuredOn(t, x.test, x.ranks, x.variants, []string{"--tests", x.test, "--quick"}, x.tune)
			for _, key := range f.order {
				line := fmt.Sprintf("%-24s", key)
				for _, v := range x.variants {
					line += fmt.Sprintf("  %s %.1f", v, middle(f.us[key][v]))
				}
				t.Log(line + " " + f.unit(key))
			}
		})
	}
}

// timed has the values that a bench has printed, by operation and size, and by variant: a time
// or a bandwidth for each turn.
type timed struct {
	order []string
	us    map[string]map[string][]float64
	rates map[string]bool // the operations and sizes whose values are rates, and not times
}

func (f *timed) unit(key string) string {
	if f.rates[key] {
		return "MB/s"
	}
	return "us"
}

func measured(t *testing.T, name string, variants, args []string, tune func(*bootstrap.Tuning, string)) timed {
	t.Helper()
	return measuredOn(t, name, 1, variants, args, tune)
}

// measuredOn runs a bench over RDMA between two pods with the given number of ranks, one variant
// after the other.
func measuredOn(t *testing.T, name string, ranks int, variants, args []string, tune func(*bootstrap.Tuning, string)) timed {
	t.Helper()
	c := newCast(t)
	c.one = true
	out := filepath.Join(c.dir, "outrigger")
	if err := Compile(out, "../../sidecar/cmd/outrigger"); err != nil {
		t.Fatal(err)
	}
	c.files = append(c.files, out)
	for turn := range *turns {
		for _, v := range variants {
			program := append([]string{"outrigger", "bench-rank", "--peer", "outrigger-rdma", "--variant", v}, args...)
			c.job(plan.Step{Name: fmt.Sprint(v, turn), Program: program, Devices: granted}, ranks, func(d *bootstrap.Tuning) {
				required(d)
				tune(d, v)
			})
		}
	}
	f := timed{us: map[string]map[string][]float64{}, rates: map[string]bool{}}
	said := c.play(name, time.Duration(len(c.steps))*4*time.Minute)[0].Output
	for _, line := range strings.Split(said, "\n") {
		var x struct {
			Op, Variant string
			Bytes       int
			US          float64
			MBs         float64 `json:"mb_s"`
		}
		if at := strings.Index(line, "{\"peer\""); at < 0 || json.Unmarshal([]byte(line[at:]), &x) != nil {
			continue
		}
		key := fmt.Sprintf("%s %d", x.Op, x.Bytes)
		if f.us[key] == nil {
			f.order, f.us[key] = append(f.order, key), map[string][]float64{}
		}
		f.rates[key] = x.US == 0
		f.us[key][x.Variant] = append(f.us[key][x.Variant], cmp.Or(x.US, x.MBs))
	}
	if len(f.order) == 0 {
		t.Fatal("nothing was measured")
	}
	return f
}

var (
	turns = flag.Int("rdma.turns", 3, "turns in TestYardstick, TestReuseGain and TestExperiments")
	trips = flag.Int("rdma.trips", 400, "round trips of each pattern in TestReuseGain")

	patterns = flag.String("rdma.patterns", "", "patterns of TestReuseGain, such as as LU,as CG; default all")
)

func middle(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
