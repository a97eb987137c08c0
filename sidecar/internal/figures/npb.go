package figures

import (
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// The NAS Parallel Benchmarks as papers 001 and 004 run them: the messages of CG and FT
// with their sizes, partners and order, and a time for the computation between them. The
// messages are those of NPB's own programs and of clientlib/examples/npb; their contents
// are not computed.

// cyclesPerFlop is the duration of a floating-point operation of a benchmark. No paper
// states it. Sparse products and transforms of arrays that do not fit a cache reach a
// fraction of an operation per cycle; the fraction changes execution times, and not the
// time of messages.
const cyclesPerFlop = 2.0

// machine is the machine of a benchmark.
type machine struct {
	model    *platform.Model
	clock    float64 // cycles/ns
	podOf    []int32
	rendez   int // larger messages use rendezvous
	protocol rendezvous.Protocol
	caps     link.Caps
	offload  bool // of a model with a Pull
}

// takagiNPB returns 64 processes on paper 001's four nodes; messages of more than 4,047
// bytes use rendezvous (001, section 4.2.3).
func takagiNPB(p rendezvous.Protocol) machine {
	m := *platform.Takagi()
	m.EagerBytes = 4047
	x := machine{model: &m, clock: 2.601, rendez: 4047, protocol: p, caps: rdma()}
	for r := range 64 {
		x.podOf = append(x.podOf, int32(r/16))
	}
	return x
}

// liuNPB returns four nodes of paper 004's machine, with one process each (004, section 7).
func liuNPB(p rendezvous.Protocol) machine {
	return machine{model: platform.Liu(), clock: 2.4, podOf: []int32{0, 1, 2, 3}, rendez: 8 << 10, protocol: p, caps: rdma()}
}

// times are the times of a benchmark: of the slowest process in total, and of its waits for
// messages by rendezvous from and to other nodes.
type times struct{ total, waiting float64 }

// runs runs a benchmark's program on a machine.
func (m machine) runs(arena int, program func(*kernel)) (all times, err error) {
	cfg := virtual.Config{
		Model: m.model, PodOf: m.podOf, Caps: m.caps, Arena: arena, Offload: m.offload,
		Core: core.Config{Rendezvous: m.protocol, EagerBytes: uint64(m.rendez), FragmentBytes: 1 << 20, FastPeers: -1},
	}
	err = measured(cfg, func(r *virtual.Rank) {
		r.Arena[0] = 1
		k := &kernel{r: r, m: &m, offers: map[uint32]int{}, half: arena / 2}
		r.Barrier()
		begin := r.Now()
		program(k)
		all.total = max(all.total, r.Now()-begin)
		all.waiting = max(all.waiting, k.waiting)
	}, nil)
	return all, err
}

// kernel is a process of a benchmark.
type kernel struct {
	r       *virtual.Rank
	m       *machine
	offers  map[uint32]int // receives that a peer has offered to this process
	half    int            // offset in the arena where messages arrive
	waiting float64
}

func (k *kernel) ranks() int  { return len(k.m.podOf) }
func (k *kernel) number() int { return int(k.r.Number) }

// compute does this process's part of a number of operations of all processes.
func (k *kernel) compute(flops float64) {
	k.r.Work(flops / float64(k.ranks()) * cyclesPerFlop / k.m.clock)
}

// swap sends n bytes to each of the peers, and receives as many from each.
func (k *kernel) swap(n int, peers ...int) {
	begin, remote := k.r.Now(), false
	var open []virtual.Request
	for i, p := range peers {
		if p != k.number() {
			open = append(open, k.r.Recv(uint32(p), 1, k.half+i*n%(k.half/2), n))
		}
	}
	for i, p := range peers {
		if p == k.number() {
			continue
		}
		if k.m.podOf[p] != k.m.podOf[k.number()] && n > k.m.rendez {
			remote = true
			if receiverFirst(k.m.protocol) {
				k.offers[uint32(p)]++
				k.r.AwaitOffer(uint32(p), k.offers[uint32(p)], offerTimeout)
			}
		}
		open = append(open, k.r.Send(uint32(p), 1, i*n%(k.half/2), n))
	}
	k.r.Wait(open...)
	if remote {
		k.waiting += k.r.Now() - begin
	}
}

// cg returns iterations of the conjugate gradient inside of CG, of n rows with a number of
// nonzeroes (RNR-94-007, "Kernel CG"): on a square grid of processes a sum over the rows, a
// transposition, and two scalar products.
func cg(n, nonzeroes, iterations int) func(*kernel) {
	return func(k *kernel) {
		edge := int(math.Sqrt(float64(k.ranks())))
		row, column := k.number()/edge, k.number()%edge
		partners := func(visit func(p int)) {
			for d := edge; d > 1; d /= 2 {
				visit(row*edge + (column+d/2)%d + column/d*d)
			}
		}
		part := n / edge * 8
		for range iterations {
			k.compute(2 * float64(n) * float64(5+nonzeroes*(nonzeroes+1)))
			partners(func(p int) { k.swap(part, p) })
			k.swap(part, column*edge+row)
			for range 2 {
				partners(func(p int) { k.swap(8, p) })
			}
		}
	}
}

// ft returns time steps of FT with a number of points (RNR-94-007, "Kernel FT"): one
// transposition if the processes divide the box along one axis, as up to 4 do here, two if
// they divide it along two.
func ft(points, steps int) func(*kernel) {
	return func(k *kernel) {
		ln := math.Log(float64(points))
		mine := points / k.ranks() * 16
		edge := int(math.Sqrt(float64(k.ranks())))
		var row, column, all []int
		for i := range k.ranks() {
			all = append(all, i)
		}
		for i := range edge {
			row = append(row, k.number()/edge*edge+i)
			column = append(column, i*edge+k.number()%edge)
		}
		for range steps {
			k.compute(float64(points) * (5.23518 + 7.21113*ln))
			if k.ranks() <= 4 {
				k.swap(mine/len(all), all...)
				continue
			}
			k.swap(mine/edge, row...)
			k.swap(mine/edge, column...)
		}
	}
}

// benchmark is a benchmark of a class, with the arena that a process needs.
type benchmark struct {
	name  string
	arena int
	run   func(*kernel)
}

func classW() []benchmark {
	return []benchmark{{"CG", 1 << 20, cg(7000, 8, 25)}, {"FT", 4 << 20, ft(128*128*32, 6)}}
}

func classA() []benchmark {
	return []benchmark{{"CG", 1 << 20, cg(14000, 11, 25)}, {"FT", 64 << 20, ft(256*256*128, 2)}}
}

func npb(r *Report, _ Effort) error {
	const law = "messages that an adapter takes for each transfer, and what is computed between them"
	const rest = "of CG and FT, the two of the paper's six programs whose execution gains most. A control message is an eighth of what CG's transfers of 7,000 bytes take an adapter; what else the paper's library waits for it does not state"
	wait, total := 0.0, 0.0
	for _, b := range classW() {
		get, err := takagiNPB(rendezvous.Get).runs(b.arena, b.run)
		if err != nil {
			return err
		}
		put, err := takagiNPB(rendezvous.Put).runs(b.arena, b.run)
		if err != nil {
			return err
		}
		wait = max(wait, improvement(get.waiting, put.waiting))
		total = max(total, improvement(get.total, put.total))
	}
	mean, slowest := 0.0, true
	for _, b := range classA() {
		pipelined, err := liuNPB(rendezvous.Stream).runs(b.arena, b.run)
		if err != nil {
			return err
		}
		read, err := liuNPB(rendezvous.GetCQE).runs(b.arena, b.run)
		if err != nil {
			return err
		}
		write, err := liuNPB(rendezvous.RPut).runs(b.arena, b.run)
		if err != nil {
			return err
		}
		slowest = slowest && pipelined.total > max(read.total, write.total)
		mean += improvement(read.total, write.total) / float64(len(classA()))
	}
	r.Rows = append(r.Rows,
		Row{Paper: "001 fig. 10a", What: "NPB W, PUT against GET: rendezvous wait time less", Unit: "%", Theirs: 41.72, Ours: wait, Law: law, Note: rest},
		Row{Paper: "001 fig. 10b", What: "NPB W, PUT against GET: execution time less", Unit: "%", Theirs: 11.14, Ours: total, Law: law, Note: rest},
		Row{
			Paper: "004 figs. 16, 17", What: "NPB: CH3 better than zero copy by", Unit: "%", Theirs: 1, Bound: true, Ours: mean, Law: "one control message more for a write that is asked for, next to the computation",
			Note: "the average of CG and FT, class A, on 4 nodes",
		},
		Row{Paper: "004 figs. 16, 17", What: "NPB: pipelined copies are the slowest in all", Unit: ordering, Theirs: 1, Ours: yes(slowest), Law: "copies take the processor and the memory bus", Note: "CG and FT, class A, on 4 nodes"},
	)
	return nil
}
