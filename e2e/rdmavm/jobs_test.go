//go:build rdmavm

package rdmavm

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/job"
	"github.com/outrigger-hpc/outrigger/e2e/rdmavm/plan"
)

// cast is a run of two machines with one pod each, with the files that the machines need.
type cast struct {
	t     *testing.T
	dir   string
	files []string
	steps []plan.Step
	one   bool // both pods are in one machine, whose clock counts instructions
	tsc   bool // value of Run.TSC
}

func newCast(t *testing.T) *cast {
	t.Helper()
	c := &cast{t: t, dir: t.TempDir()}
	for pkg, tags := range map[string][]string{
		"../../hack/rdmavm/pod": nil, "../../hack/rdmavm/pingpong": nil, "../../hack/rdmavm/windows": nil, "../../hack/rdmavm/reuse": nil, "../../hack/rdmavm/exposed": nil, "../../clientlib/examples/npb": nil, "../../clientlib/examples/ring": nil,
		"../../sidecar/cmd/outrigger-launch": nil, "../../sidecar/cmd/outrigger-sidecar": {"rdma"},
	} {
		out := filepath.Join(c.dir, filepath.Base(pkg))
		if err := Compile(out, pkg, tags...); err != nil {
			t.Fatal(err)
		}
		c.files = append(c.files, out)
	}
	return c
}

func (c *cast) write(name string, content []byte) {
	c.t.Helper()
	name = filepath.Join(c.dir, name)
	if err := os.WriteFile(name, content, 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.files = append(c.files, name)
}

// inMachine is the folder of these files in the machine.
const inMachine = "/usr/local/bin/"

// job adds a step that runs a program as ranks of two pods. tune changes the
// document.
func (c *cast) job(s plan.Step, ranksPerPod int, tune func(*bootstrap.Tuning)) {
	c.t.Helper()
	c.document(s, ranksPerPod, func(d *bootstrap.Document) {
		if tune != nil {
			tune(&d.Tuning)
		}
	})
}

// document is like job, for a caller that changes other parts of the document.
func (c *cast) document(s plan.Step, ranksPerPod int, change func(*bootstrap.Document)) {
	c.t.Helper()
	id := fmt.Sprintf("job%d", len(c.steps))
	d := &bootstrap.Document{
		Version: bootstrap.Version, Job: bootstrap.Job{Name: s.Name, ID: id}, Ranks: 2 * ranksPerPod,
		TLS:    bootstrap.TLS{CAFile: inMachine + id + "-ca", CertFile: inMachine + id + "-cert%d", KeyFile: inMachine + id + "-key%d"},
		Memory: bootstrap.Memory{ArenaBytes: 32 << 20},
		// Emulation is slow, and sometimes stops a machine for a while.
		Tuning: bootstrap.Tuning{Heartbeat: bootstrap.Duration(2 * time.Second), DeadAfter: bootstrap.Duration(40 * time.Second)},
	}
	a, err := pki.New(id, 24*time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(id+"-ca", a.CA())
	for pod := range 2 {
		leaf, err := a.Leaf(pod)
		if err != nil {
			c.t.Fatal(err)
		}
		c.write(fmt.Sprintf("%s-cert%d", id, pod), leaf.Cert)
		c.write(fmt.Sprintf("%s-key%d", id, pod), leaf.Key)
		first := pod * ranksPerPod
		address := fmt.Sprintf("%s:%d", job.Address(pod), 7100+len(c.steps))
		if c.one {
			address = fmt.Sprintf("%s:%d", job.Address(0), 7100+200*pod+len(c.steps))
		}
		d.Pods = append(d.Pods, bootstrap.Pod{Name: fmt.Sprint(pod), Address: address, FirstRank: first, Ranks: ranksPerPod})
		s.Ranks = append(s.Ranks, fmt.Sprintf("%d-%d", first, first+ranksPerPod-1))
	}
	change(d)
	raw, err := json.Marshal(d)
	if err != nil {
		c.t.Fatal(err)
	}
	s.Document = id + ".json"
	c.write(s.Document, raw)
	c.steps = append(c.steps, s)
}

// granted describes a machine's device in the device plugin's format.
var granted = devices.Encode([]devices.Device{{Kind: "hca", Name: job.Device, NUMA: -1, Files: []string{"/dev/infiniband/uverbs0"}, LinkType: "ethernet"}})

func required(t *bootstrap.Tuning) { t.Require = bootstrap.Names{bootstrap.TransportRDMA} }

// play runs the plan; every step must end with the results that the step names.
func (c *cast) play(name string, limit time.Duration) []Outcome {
	c.t.Helper()
	raw, err := json.Marshal(c.steps)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(plan.File, raw)
	if c.one {
		return passes(c.t, Run{Name: name, Programs: c.files, Commands: [][]string{{"pod", plan.Both}}, Limit: limit, Counted: true})
	}
	return passes(c.t, Run{Name: name, Programs: c.files, Commands: [][]string{{"pod"}, {"pod"}}, Limit: limit, TSC: c.tsc})
}

var (
	connected = regexp.MustCompile(`connected by RDMA" pod=\d peer=\d device=rxe0 .*gid=\S*10\.8\.0\.\d qp=\d+ .*peerQp=\d+`)
	packets   = regexp.MustCompile(`counters of rxe0: sent_pkts \+\d+`)
)

// perPod is the number of ranks of a pod: each machine has one processor.
var perPod = flag.Int("rdma.ranks", 1, "ranks of a pod in TestNPB")

// TestNPB: kernels of the NAS Parallel Benchmarks verify over RDMA between two machines, and use
// libibverbs, as the device, the GID, the queue pairs and the device's own counters show.
func TestNPB(t *testing.T) {
	c := newCast(t)
	for _, kernel := range []string{"cg", "is"} {
		c.job(plan.Step{Name: kernel, Program: []string{"npb", "-class", "S", kernel}, Devices: granted}, *perPod, required)
	}
	for i, o := range c.play("npb", 6*time.Minute) {
		if i == 0 && strings.Count(o.Output, "VERIFICATION SUCCESSFUL") != 2 {
			t.Error("not every kernel verified")
		}
		if !connected.MatchString(o.Output) || len(packets.FindAllString(o.Output, -1)) != 2 {
			t.Errorf("machine %d does not show that RDMA was used", i)
		}
	}
}

var (
	protocols = []string{"auto", "getcqe", "get", "put", "putnr", "rput", "stream"}
	channels  = []string{"piggyback", "basic", "pipeline", "zerocopy"}
	receives  = []string{bootstrap.ReceivesOwn, bootstrap.ReceivesShared}
)

// diagonal is the part of the matrix that has every protocol once, with the kernel that runs in
// seconds under emulation.
const diagonal = "diagonal"

var matrix = flag.String("rdma.matrix", "is,cg", "TestMatrix: kernels that run with every protocol and every channel, such as is,cg; or "+diagonal+", IS with every protocol once")

// TestMatrix: the kernels verify with every rendezvous protocol and every eager
// channel, and the protocols move their data by the remote operations that they are
// made of. Messages are rendezvous from 1 KiB on.
func TestMatrix(t *testing.T) {
	c, list := newCast(t), strings.Split(*matrix, ",")
	if *matrix == diagonal {
		list = []string{"is"}
	}
	for i, protocol := range protocols {
		for j, channel := range channels {
			if *matrix == diagonal && j != i%len(channels) {
				continue
			}
			for _, kernel := range list {
				c.job(plan.Step{Name: strings.Join([]string{protocol, channel, kernel}, "-"), Program: []string{"npb", "-class", "S", kernel}, Devices: granted}, 1, func(tune *bootstrap.Tuning) {
					required(tune)
					// Soft-RoCE places writes in order and does not report it. Without InOrder, get is getcqe and basic is piggyback.
					tune.InOrder = true
					tune.Rendezvous, tune.Channel, tune.EagerBytes = protocol, channel, 1024
					tune.Receives = receives[i%2]
				})
			}
		}
	}
	steps := make([]string, 2)
	for i, o := range c.play("matrix", time.Duration(len(c.steps))*4*time.Minute) {
		steps[i] = o.Output
	}
	for _, s := range c.steps {
		used := [2]remoteUse{useOf(t, steps[0], s.Name), useOf(t, steps[1], s.Name)}
		protocol, _, _ := strings.Cut(s.Name, "-")
		if shared := slices.Index(protocols, protocol)%2 == 1; shared != (used[0].shared > 0) || shared != (used[1].shared > 0) {
			t.Errorf("%s: %.0f and %.0f shared receives, want some: %v", s.Name, used[0].shared, used[1].shared, shared)
		}
		reads, writes := used[0].reads+used[1].reads, used[0].writes+used[1].writes
		t.Logf("%-26s %6.0f reads, %6.0f writes, %6.0f sends", s.Name, reads, writes, used[0].sends+used[1].sends)
		switch protocol {
		case "put", "putnr": // these protocols also read a message that was announced before its receive was offered
		case "rput", "stream":
			if reads > 0 {
				t.Errorf("%s: %.0f remote reads", s.Name, reads)
			}
		default:
			if reads == 0 {
				t.Errorf("%s: no remote read", s.Name)
			}
		}
		if writes == 0 { // there must be at least the writes of the eager channel
			t.Errorf("%s: no remote write", s.Name)
		}
	}
}

// remoteUse counts the operations of a sidecar on its device.
type remoteUse struct{ sends, writes, reads, shared float64 }

// stepOf returns the part of an output that belongs to a step.
func stepOf(t *testing.T, output, step string) string {
	t.Helper()
	_, part, found := strings.Cut(output, "== step "+step+"\n")
	if !found {
		t.Fatalf("no step %s in the output", step)
	}
	part, _, _ = strings.Cut(part, "== step ")
	return part
}

// useOf reads a remoteUse from the log of a step, whose result must have been verified.
func useOf(t *testing.T, output, step string) remoteUse {
	t.Helper()
	part := stepOf(t, output, step)
	if !connected.MatchString(part) {
		t.Fatalf("%s does not show that RDMA was used", step)
	}
	return remoteUse{figure(t, part, `used RDMA" .*sends=(\d+)`), figure(t, part, `used RDMA" .*writes=(\d+)`), figure(t, part, `used RDMA" .*reads=(\d+)`), figure(t, part, `used RDMA" .*sharedReceives=(\d+)`)}
}

// TestYardstick measures the machines' devices by turns with perftest and through Outrigger.
// Times under emulation are not those of hardware; the ratio within one turn shows the cost
// that Outrigger adds.
func TestYardstick(t *testing.T) {
	c := newCast(t)
	c.tsc = true
	perftest := func(name string, args ...string) {
		// -x: the line of the table of GIDs that the link chooses, too: the IPv4 address.
		line := append(args, "-d", job.Device, "-x", "1", "-F")
		c.steps = append(c.steps, plan.Step{Name: name, Commands: [][]string{line, append(append([]string{}, line...), job.Address(0))}})
	}
	// The RDMA connection manager also works in these machines.
	rping := []string{"rping", "-a", job.Address(0), "-C", "5"}
	c.steps = append(c.steps, plan.Step{Name: "rping", Commands: [][]string{append(rping[:len(rping):len(rping)], "-s"), append(rping[:len(rping):len(rping)], "-c")}})
	quick := []string{"pingpong", "-small", "300", "-large", "2"}
	for i := range *turns {
		perftest(fmt.Sprint("write_lat", i), "ib_write_lat", "-s", "8", "-n", "1000")
		perftest(fmt.Sprint("write_bw", i), "ib_write_bw", "-s", "262144", "-n", "128")
		c.job(plan.Step{Name: fmt.Sprint("rdma", i), Program: quick, Devices: granted}, 1, required)
		c.job(plan.Step{Name: fmt.Sprint("tcp", i), Program: quick}, 1, nil)
	}
	out := c.play("yardstick", time.Duration(*turns)*9*time.Minute)[0].Output
	var lats, bws, ways, rates, tcpWays, tcpRates, toLat, toBW []float64
	for i := range *turns {
		rdma, tcp := stepOf(t, out, fmt.Sprint("rdma", i)), stepOf(t, out, fmt.Sprint("tcp", i))
		const way, rate = `pingpong 8 bytes: (\S+) us`, `pingpong 256 KiB: (\S+) MB/s`
		lats = append(lats, figure(t, stepOf(t, out, fmt.Sprint("write_lat", i)), `(?m)^ *8 +1000 +\S+ +\S+ +(\S+)`))
		bws = append(bws, figure(t, stepOf(t, out, fmt.Sprint("write_bw", i)), `(?m)^ *262144 +128 +\S+ +(\S+)`)*1.048576) // perftest's MB are MiB
		ways, rates = append(ways, figure(t, rdma, way)), append(rates, figure(t, rdma, rate))
		tcpWays, tcpRates = append(tcpWays, figure(t, tcp, way)), append(tcpRates, figure(t, tcp, rate))
		toLat, toBW = append(toLat, ways[i]/lats[i]), append(toBW, rates[i]/bws[i])
	}
	t.Logf("8 bytes: perftest %.1f us, Outrigger by RDMA %.1f us, %.2f times (median; turns %.2f), by tcp %.1f us", lats, ways, middle(toLat), toLat, tcpWays)
	t.Logf("256 KiB: perftest %.2f MB/s, Outrigger by RDMA %.2f MB/s, %.2f of it (median; turns %.2f), by tcp %.2f MB/s", bws, rates, middle(toBW), toBW, tcpRates)
}

// TestCountedYardstick sends 8 bytes from one rank to another one, by RDMA and by tcp, in a
// machine with one processor whose clock counts instructions. It counts the instructions of the
// two ranks, the two sidecars and the kernel together. perftest gives no figure there, since it
// polls without yielding the processor to its other side; TestCost has one for this machine.
func TestCountedYardstick(t *testing.T) {
	c := newCast(t)
	c.one = true
	quick := []string{"pingpong", "-small", "300", "-large", "1"}
	c.job(plan.Step{Name: "rdma", Program: quick, Devices: granted}, 1, required)
	c.job(plan.Step{Name: "tcp", Program: quick}, 1, nil)
	out := c.play("counted-yardstick", 5*time.Minute)[0].Output
	rdma, tcp, _ := strings.Cut(out, "== step tcp")
	const way = `pingpong 8 bytes: (\S+) us`
	t.Logf("8 bytes, 1,000 instructions: by RDMA %.1f, by tcp %.1f", figure(t, rdma, way), figure(t, tcp, way))
}

// figure returns a number in an output.
func figure(t *testing.T, in, pattern string) float64 {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(in)
	if m == nil {
		t.Fatalf("the output has no %s:\n%s", pattern, in)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestWindows: puts and gets of windows between two machines are remote writes and
// reads of the device, with right results, together with locks and counters.
func TestWindows(t *testing.T) {
	c := newCast(t)
	c.job(plan.Step{Name: "windows", Program: []string{"windows"}, Devices: granted}, 1, required)
	c.job(plan.Step{Name: "windows-of-two", Program: []string{"windows", "-rounds", "5"}, Devices: granted}, 2, required)
	for i, o := range c.play("windows", 8*time.Minute) {
		for _, s := range c.steps {
			part := stepOf(t, o.Output, s.Name)
			if i == 0 && !strings.Contains(part, "every word, record and counter right") {
				t.Errorf("%s: not every word was checked", s.Name)
			}
			used, puts, gets := useOf(t, o.Output, s.Name), moved(t, part, "remote put"), moved(t, part, "remote get")
			t.Logf("machine %d, %s: %.0f puts by %.0f remote writes in all, %.0f gets by %.0f remote reads, %.0f accesses of the peer by frames",
				i, s.Name, puts, used.writes, gets, used.reads, moved(t, part, "one-sided"))
			if puts < 5 || gets < 8 || used.writes < puts || used.reads < gets {
				t.Errorf("machine %d, %s: the windows were not reached remotely", i, s.Name)
			}
		}
	}
}

// moved returns the number of messages that a sidecar has sent by a protocol, from its report.
func moved(t *testing.T, step, protocol string) float64 {
	t.Helper()
	return figure(t, step, `moved: .*`+protocol+` (\d+)`)
}

var (
	breaks  = flag.Int("rdma.breaks", 1000, "TestFaultsNPB: forced errors of queue pairs, divided among the kernels")
	kernels = flag.String("rdma.kernels", "is-S,cg-S,mg-S", "TestFaultsNPB: kernels with their classes, such as is-S")
)

// faults are jobs, each of which prints a line that proves its result. A result is right only if
// no message was lost and none was received twice: the kernels compare their results with
// published values, and the windows compare their counters with the number of additions.
type faults struct {
	*cast
	proofs map[string]string
}

// job adds a job during which queue pairs fail.
func (f *faults) job(name, proof, receives string, errors int, program ...string) {
	f.proofs[name] = proof
	f.cast.job(plan.Step{Name: name, Program: program, Devices: granted, Breaks: errors}, 1, func(tune *bootstrap.Tuning) {
		required(tune)
		tune.Receives = receives
	})
}

// play requires the line of each job, and, in the sidecars' own counters, as many reconnections
// as failures.
func (f *faults) play(name string) {
	t := f.t
	t.Helper()
	limit := 5 * time.Minute
	for _, s := range f.steps {
		limit += time.Duration(s.Breaks) * 9 * time.Second
	}
	out, total := f.cast.play(name, limit), [2]float64{}
	for _, s := range f.steps {
		if !strings.Contains(stepOf(t, out[0].Output, s.Name), f.proofs[s.Name]) {
			t.Errorf("%s: the result was not checked", s.Name)
		}
		for i, o := range out {
			part := stepOf(t, o.Output, s.Name)
			broken, again := figure(t, part, `connections: (\d+) broken`), figure(t, part, `broken, (\d+) made again`)
			t.Logf("%s, machine %d: %d errors forced; connections: %.0f broken, %.0f made again", s.Name, i, s.Breaks, broken, again)
			if again < float64(s.Breaks) || broken < again {
				t.Errorf("%s, machine %d: the counters do not agree with the errors", s.Name, i)
			}
			total[i] += again
		}
	}
	t.Logf("connections made again in all: %.0f and %.0f", total[0], total[1])
}

// TestFaults: if queue pairs fail and packets are lost, every byte of every round is right, and
// only time is lost.
func TestFaults(t *testing.T) {
	f := &faults{newCast(t), map[string]string{"loss": "every byte right", "loss-is": "VERIFICATION SUCCESSFUL"}}
	f.job("breaks", "every word right", bootstrap.ReceivesOwn, 10, "pingpong", "-soak", plan.Enough)
	f.job("breaks-windows", "every word, record and counter right", bootstrap.ReceivesShared, 10, "windows", "-soak", plan.Enough)
	f.cast.job(plan.Step{Name: "loss", Program: []string{"ring", "-rounds", "60", "-bytes", "100000"}, Devices: granted, Loss: "2%"}, 1, required)
	f.cast.job(plan.Step{Name: "loss-is", Program: []string{"npb", "-class", "S", "is"}, Devices: granted, Loss: "2%"}, 1, required)
	f.play("faults")
}

// TestFaultsNPB: the kernels of the NAS Parallel Benchmarks, which run repeatedly while queue
// pairs fail, verify every time.
func TestFaultsNPB(t *testing.T) {
	f := &faults{newCast(t), map[string]string{}}
	list := strings.Split(*kernels, ",")
	for i, k := range list {
		kernel, class, _ := strings.Cut(k, "-")
		errors := (*breaks + i) / len(list) // the sum over all kernels is *breaks
		f.job("breaks-"+k, "all of them verified", receives[(i+1)%2], errors, "npb", "-class", class, "-until", plan.Enough, kernel)
	}
	f.play("faults-npb")
}
