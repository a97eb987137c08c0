package figures

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// The experiments of paper 003: large messages are pulled in fragments, and each fragment is
// copied by the receiver's processor, or by its copy engine.

// way is how fragments and large messages within a node are copied.
type way struct {
	name          string
	offload, free bool // free: not at all
	cached        bool // within a node, out of a cache that the ranks share
}

var (
	byProcessor = way{name: "processor"}
	byEngine    = way{name: "I/OAT", offload: true}
	notCopied   = way{name: "no copy", free: true}
	inCache     = way{name: "processor, shared cache", cached: true}
)

// goglin returns a job on paper 003's machines.
func goglin(w way, podOf ...int32) virtual.Config {
	return virtual.Config{
		Model: platform.Goglin(), PodOf: podOf, Caps: rdma(), Arena: 40 << 20, Offload: w.offload, Free: w.free, Cached: w.cached,
		Core: core.Config{Rendezvous: rendezvous.GetCQE, FastPeers: -1},
	}
}

// arrive is the offset in the arena where messages and results arrive.
const arrive = 16 << 20

// MiB/s of n bytes in a time in nanoseconds.
func perSecond(n int, ns float64) float64 { return float64(n) / (1 << 20) / ns * 1e9 }

// goglinRate returns the MiB/s of a ping-pong (003, sections 4.2 and 4.3).
func goglinRate(w way, n int, podOf ...int32) (rate float64, err error) {
	rounds := 4
	err = measured(goglin(w, podOf...), func(r *virtual.Rank) {
		other := 1 - r.Number
		r.Barrier()
		begin := r.Now()
		for range rounds {
			in := r.Recv(other, 1, arrive, n)
			if r.Number == 0 {
				r.Wait(r.Send(other, 1, 0, n), in)
			} else {
				r.Wait(in)
				r.Wait(r.Send(other, 1, 0, n))
			}
		}
		if r.Number == 0 {
			rate = perSecond(n, (r.Now()-begin)/float64(2*rounds))
		}
	}, nil)
	return rate, err
}

// goglinLoad returns the part of a processor that the receiver of a stream of messages uses,
// in percent (003, section 4.2.2).
func goglinLoad(w way, n int) (percent float64, err error) {
	var world *virtual.World
	cfg, took := goglin(w, 0, 1), 0.0
	err = measured(cfg, func(r *virtual.Rank) {
		for range 8 { // one after another
			if r.Number == 0 {
				r.Wait(r.Send(1, 1, 0, n))
			} else {
				r.Wait(r.Recv(0, 1, arrive, n))
			}
		}
		took = r.Now()
	}, func(w *virtual.World) { world = w })
	if err == nil {
		percent = 100 * world.CPUTime(1) / took
	}
	return percent, err
}

// imb is a test of the Intel MPI Benchmarks: one round with messages of n bytes.
type imb struct {
	name  string
	round func(r *virtual.Rank, ranks, n int)
}

// neighbours sends to and receives from the ranks at distances.
func neighbours(distances ...int) func(*virtual.Rank, int, int) {
	return func(r *virtual.Rank, ranks, n int) {
		var open []virtual.Request
		for i, d := range distances {
			open = append(open, r.Recv(uint32((int(r.Number)-d+ranks)%ranks), 1, arrive+i*n, n))
		}
		for _, d := range distances {
			open = append(open, r.Send(uint32((int(r.Number)+d+ranks)%ranks), 1, 0, n))
		}
		r.Wait(open...)
	}
}

// together runs a collective with blocks of n bytes, or with n bytes in all if whole.
func together(kind uint8, whole bool) func(*virtual.Rank, int, int) {
	return func(r *virtual.Rank, ranks, n int) {
		in, out := n, n
		switch kind {
		case shm.CollBcast:
			in = 0
		case shm.CollAllgather:
			out = n * ranks
		case shm.CollAlltoall:
			in, out = n*ranks, n*ranks
		case shm.CollReduceScatter:
			out = n / ranks
		}
		if whole {
			n /= ranks
		}
		r.Wait(r.Collective(kind, 0, n, 0, in, arrive, out))
	}
}

// reduceScatter is the test that paper 003 found slower with I/OAT, on 2 processes a node.
var reduceScatter = imb{"ReduceScatter", together(shm.CollReduceScatter, true)}

// suite is the tests of paper 003's figure 12 that send large messages.
var suite = []imb{
	{"PingPing", neighbours(1)},
	{"SendRecv", neighbours(1, 1)},
	{"Exchange", neighbours(1, -1)},
	{"Allreduce", together(shm.CollAllreduce, false)},
	{"Reduce", together(shm.CollReduce, false)},
	reduceScatter,
	{"Allgather", together(shm.CollAllgather, false)},
	{"Alltoall", together(shm.CollAlltoall, false)},
	{"Bcast", together(shm.CollBcast, false)},
}

// gain returns by how many percent a test is faster with I/OAT.
func (t *imb) gain(n int, podOf ...int32) (float64, error) {
	took := map[bool]float64{}
	for _, w := range []way{byProcessor, byEngine} {
		err := measured(goglin(w, podOf...), func(r *virtual.Rank) {
			r.Barrier()
			begin := r.Now()
			for range 3 {
				t.round(r, len(podOf), n)
			}
			took[w.offload] = max(took[w.offload], r.Now()-begin)
		}, nil)
		if err != nil {
			return 0, err
		}
	}
	return 100 * (took[false]/took[true] - 1), nil
}

// suiteGain returns the mean gain of all tests.
func suiteGain(n int, podOf ...int32) (mean float64, err error) {
	for i := range suite {
		g, err := suite[i].gain(n, podOf...)
		if err != nil {
			return 0, err
		}
		mean += g / float64(len(suite))
	}
	return mean, nil
}

// is returns iterations of IS (RNR-94-007, "Kernel IS"): each process counts its keys by
// bucket, all add up the counts, and each sends every other one the keys of its buckets. A
// key costs perKey operations, which no paper states: it is read and written, and its count
// is read and written, by bucket and by key.
func is(keys, iterations int) func(*kernel) {
	const perKey = 8
	return func(k *kernel) {
		var others []int
		for i := range k.ranks() {
			others = append(others, i)
		}
		part := keys / k.ranks() / k.ranks() * 4
		for range iterations {
			k.compute(perKey * float64(keys))
			k.swap(4<<10, others...)
			k.swap(part, others...)
		}
	}
}

// sizes003 are those of paper 003's figures.
var sizes003 = []int{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20}

// over003 returns the curve of an experiment over the sizes.
func over003(name string, run func(n int) (float64, error)) (Curve, error) {
	c := Curve{Name: name}
	for _, n := range sizes003 {
		y, err := run(n)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, Point{float64(n), y})
	}
	return c, nil
}

func offloading(r *Report, _ Effort) error {
	rates := Plot{Name: "003-fig3-8-11-pingpong", Title: "003, figs. 3, 8 and 11: ping-pong between nodes", X: "message", Y: "MiB/s", Sizes: true}
	load := Plot{Name: "003-fig9-cpu", Title: "003, fig. 9: processor of a receiver", X: "message", Y: "%", Sizes: true}
	local := Plot{Name: "003-fig10-local", Title: "003, fig. 10: ping-pong within a node", X: "message", Y: "MiB/s", Sizes: true}
	for _, p := range []struct {
		plot *Plot
		ways []way
		run  func(w way, n int) (float64, error)
	}{
		{&rates, []way{byProcessor, byEngine, notCopied}, func(w way, n int) (float64, error) { return goglinRate(w, n, 0, 1) }},
		{&load, []way{byProcessor, byEngine}, goglinLoad},
		{&local, []way{byProcessor, byEngine, inCache}, func(w way, n int) (float64, error) { return goglinRate(w, n, 0, 0) }},
	} {
		for _, w := range p.ways {
			c, err := over003(w.name, func(n int) (float64, error) { return p.run(w, n) })
			if err != nil {
				return err
			}
			p.plot.Curves = append(p.plot.Curves, c)
		}
		r.Plots = append(r.Plots, *p.plot)
	}
	r.Plots = append(r.Plots, chunkPlot())
	if err := offloadRows(r, &rates, &load, &local); err != nil {
		return err
	}
	return suiteRows(r)
}

// chunkPlot is paper 003's figure 7, of which the curves are inputs.
func chunkPlot() Plot {
	p, m := Plot{Name: "003-fig7-chunks", Title: "003, fig. 7: streams of copies, inputs of the model", X: "chunk", Y: "MiB/s", Sizes: true}, platform.Goglin().Pull
	engine, processor := Curve{Name: "I/OAT"}, Curve{Name: "processor"}
	for n := 256; n <= 4096; n *= 2 {
		engine.Points = append(engine.Points, Point{float64(n), perSecond(n, max(m.Submit, m.Engine*float64(n)))})
		processor.Points = append(processor.Points, Point{float64(n), perSecond(n, m.Copy*float64(n))})
	}
	p.Curves = []Curve{processor, engine}
	return p
}

// faster returns by how many percent one curve is above another, on the average from a size
// on.
func faster(before, after *Curve, from float64) (mean float64) {
	n := 0.0
	for i, p := range before.Points {
		if p.X >= from {
			mean += 100 * (after.Points[i].Y/p.Y - 1)
			n++
		}
	}
	return mean / n
}

func offloadRows(r *Report, rates, load, local *Plot) error {
	const mega = 1 << 20
	plain, engine, free := &rates.Curves[0], &rates.Curves[1], &rates.Curves[2]
	most := 0.0
	for i := range plain.Points {
		most = max(most, 100*(engine.Points[i].Y/plain.Points[i].Y-1))
	}
	const law = "a fragment costs its handling and a copy, or its handling and the submissions"
	const handling = "the handling is what 800 MiB/s leaves with copies at 1.6 GiB/s, 5.0 us a fragment; with copies at figure 10's 1.2 GiB/s it would be 3.3 us, and 74 % would come out"
	localMemcpy, localEngine, cached := &local.Curves[0], &local.Curves[1], &local.Curves[2]
	r.Rows = append(r.Rows,
		Row{Paper: "003 fig. 3", What: "without the copy, 4 MiB: throughput", Unit: "MiB/s", Theirs: 1140, Ours: free.last(), Law: "the wire, since the handling alone is faster", Note: "the paper's value is that of MX, and it says that line rate appears achievable"},
		Row{Paper: "003 fig. 8", What: "I/OAT, 4 MiB: throughput", Unit: "MiB/s", Theirs: 1114, Ours: engine.last(), Law: law},
		Row{Paper: "003 fig. 8", What: "I/OAT against copies: throughput more, up to", Unit: "%", Theirs: 50, Ours: most, Law: law},
		Row{Paper: "003, section 4.4, fig. 11", What: "I/OAT against copies, more than 64 kB: throughput more, average", Unit: "%", Theirs: 30, Ours: faster(plain, engine, 128<<10), Law: law},
		Row{Paper: "003 fig. 8", What: "I/OAT against no copy, 256 kB: throughput less", Unit: "%", Theirs: 26, Ours: improvement(free.at(256<<10), engine.at(256<<10)), Law: "submissions, and the wait for the last copies", Note: "the paper names the management of I/OAT, without a number but that of a submission"},
		Row{Paper: "003 fig. 9", What: "copies, 4 MiB: processor of the receiver", Unit: "%", Theirs: 95, Ours: load.Curves[0].last(), Law: law},
		Row{Paper: "003 fig. 9", What: "I/OAT, 4 MiB: processor of the receiver", Unit: "%", Theirs: 60, Ours: load.Curves[1].last(), Law: law, Note: handling},
		Row{Paper: "003 fig. 9", What: "copies, 32 kB: processor of the receiver", Unit: "%", Theirs: 50, Ours: load.Curves[0].at(32 << 10), Law: "the round trip of the rendezvous", Note: "latencies are assumed"},
		Row{Paper: "003 fig. 10", What: "within a node, copies of 4 MiB: throughput", Unit: "MiB/s", Theirs: 1.2 * 1024, Ours: localMemcpy.last(), Law: "one copy", Note: "copies have the 1.6 GiB/s of section 4.1 here"},
		Row{Paper: "003 fig. 10", What: "within a node, I/OAT, 4 MiB: throughput", Unit: "MiB/s", Theirs: 2.3 * 1024, Ours: localEngine.last(), Law: "one copy by the engine"},
		Row{Paper: "003 fig. 10", What: "within a node, 4 MiB: throughput more", Unit: "%", Theirs: 80, Ours: faster(localMemcpy, localEngine, 4*mega), Law: "the engine's rate against the processor's", Note: "2.4 against 1.6 GiB/s is 50 %; the paper's 80 % needs its 1.2 GiB/s"},
		Row{Paper: "003 fig. 10", What: "unfavourable: within a node, 256 kB in a shared cache, copies are faster", Unit: ordering, Theirs: 1, Ours: yes(cached.at(256<<10) > localEngine.at(256<<10)), Law: "the cache's rate against the engine's"},
	)
	p := platform.Goglin().Pull
	page := 4096.0
	r.Rows = append(r.Rows, Row{
		Paper: "003, section 4.3", What: "unfavourable: 4 kB fragments of medium messages, each awaited, are slower with I/OAT", Unit: ordering, Theirs: 1,
		Ours: yes(page/float64(p.Chunk)*p.Submit+p.Engine*page > p.Copy*page), Law: "submission and copy by the engine, one after the other",
		Note: "the engine's start takes longer than the submission, by how much the paper does not state",
	})
	return nil
}

func suiteRows(r *Report) error {
	one, two := []int32{0, 1}, []int32{0, 1, 0, 1}
	gains := [3]float64{}
	for i, x := range []struct {
		n     int
		podOf []int32
	}{{128 << 10, one}, {4 << 20, one}, {4 << 20, two}} {
		g, err := suiteGain(x.n, x.podOf...)
		if err != nil {
			return err
		}
		gains[i] = g
	}
	scatter, err := reduceScatter.gain(128<<10, two...)
	if err != nil {
		return err
	}
	sort := [2]times{}
	for i, w := range []way{byProcessor, byEngine} {
		m := machine{model: platform.Goglin(), clock: 2.33, podOf: one, rendez: 32 << 10, caps: rdma(), protocol: rendezvous.GetCQE, offload: w.offload}
		if sort[i], err = m.runs(40<<20, is(1<<23, 2)); err != nil {
			return err
		}
	}
	const law = "large messages of each test's algorithm, by the costs of a fragment"
	const note = "nine tests; algorithms are this engine's"
	r.Rows = append(r.Rows,
		Row{Paper: "003 fig. 12", What: "IMB, 128 kB, 1 process a node: throughput more", Unit: "%", Theirs: 24, Ours: gains[0], Law: law, Note: note},
		Row{Paper: "003 fig. 12", What: "IMB, 4 MB, 1 process a node: throughput more", Unit: "%", Theirs: 32, Ours: gains[1], Law: law, Note: note},
		Row{Paper: "003 fig. 12", What: "IMB, 4 MB, 2 processes a node: throughput more", Unit: "%", Theirs: 41, Ours: gains[2], Law: law, Note: note + "; the model's nodes have one processor for all"},
		Row{Paper: "003 fig. 12", What: "unfavourable: ReduceScatter, 128 kB, 2 processes a node, is slower with I/OAT", Unit: ordering, Theirs: 1, Ours: yes(scatter < 0), Law: law, Note: "the paper does not know why"},
		Row{Paper: "003, section 4.4", What: "NPB IS A, 2 processes: faster by up to", Unit: "%", Theirs: 10, Ours: 100 * (sort[0].total/sort[1].total - 1), Law: "the exchange of keys, and what is computed between", Note: "8 operations for a key are assumed"},
	)
	return nil
}
