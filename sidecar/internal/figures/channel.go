package figures

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/virtual"
)

// liu returns two nodes of paper 004's machine.
func liu(caps link.Caps, c core.Config) virtual.Config {
	return virtual.Config{Model: platform.Liu(), PodOf: []int32{0, 1}, Caps: caps, Arena: 20 << 20, Core: c}
}

// smallLatency returns half a round trip of a few bytes by an eager channel.
func smallLatency(channel eagerring.Kind, rounds int) (took float64, err error) {
	err = measured(liu(rdma(), core.Config{Channel: channel}), func(r *virtual.Rank) {
		other := 1 - r.Number
		r.Barrier()
		begin := r.Now()
		for range rounds {
			in := r.Recv(other, 1, 4096, 4)
			if r.Number == 0 {
				r.Wait(r.Send(other, 1, 0, 4), in)
			} else {
				r.Wait(in)
				r.Wait(r.Send(other, 1, 0, 4))
			}
		}
		took = (r.Now() - begin) / float64(rounds) / 2
	}, nil)
	return took, err
}

// window is the number of messages in progress in a bandwidth test (004, section 4.2.1 has
// a predefined number that it does not state).
const window = 16

// bandwidth returns MB/s of back-to-back windows of messages (004, section 4.2.1).
func bandwidth(p rendezvous.Protocol, fragment uint32, rounds, window, n int) (rate float64, err error) {
	c := core.Config{Rendezvous: p, FragmentBytes: fragment, EagerBytes: 8 << 10}
	err = measured(liu(rdma(), c), func(r *virtual.Rank) {
		other := 1 - r.Number
		r.Barrier()
		begin := r.Now()
		for range rounds {
			var open []virtual.Request
			for i := range window {
				if r.Number == 0 {
					open = append(open, r.Send(other, 1, i*n, n))
				} else {
					open = append(open, r.Recv(other, 1, i*n, n))
				}
			}
			r.Wait(open...)
		}
		if r.Number == 0 {
			rate = float64(rounds*window*n) / (r.Now() - begin) * 1e3
		}
	}, nil)
	return rate, err
}

// basicBandwidth returns the bandwidth of the basic ring for large messages. A part that
// does not fit the ring waits until the ring has been emptied, and each part is copied,
// written and copied out one after another (004, section 4.2.1): one frame at a time, as
// large as the message.
func basicBandwidth(rounds int) (float64, error) {
	const n = 1 << 20
	return bandwidth(rendezvous.Stream, n, 16*rounds, 1, n)
}

// sizes004 are the sizes of paper 004's large messages.
var sizes004 = []int{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}

func channels(r *Report, e Effort) error {
	small := map[eagerring.Kind]float64{}
	for _, k := range []eagerring.Kind{eagerring.Basic, eagerring.PiggyBack, eagerring.ZeroCopy} {
		ns, err := smallLatency(k, e.Rounds)
		if err != nil {
			return err
		}
		small[k] = ns / 1e3
	}
	plot := Plot{Name: "004-fig8-13-bandwidth", Title: "004, figs. 8, 11 and 13: bandwidth", X: "message", Y: "MB/s", Sizes: true}
	peak := map[string]float64{}
	for _, c := range []struct {
		name string
		p    rendezvous.Protocol
	}{{"pipelined copies of 16 KB", rendezvous.Stream}, {"zero copy by remote read", rendezvous.GetCQE}, {"CH3: remote write", rendezvous.RPut}} {
		curve := Curve{Name: c.name}
		for _, n := range e.of(sizes004) {
			rate, err := bandwidth(c.p, 16<<10, max(e.Rounds/1000, 2), window, n)
			if err != nil {
				return err
			}
			curve.Points = append(curve.Points, Point{float64(n), rate})
			peak[c.name] = max(peak[c.name], rate)
		}
		plot.Curves = append(plot.Curves, curve)
	}
	chunks := Plot{Name: "004-fig9-chunks", Title: "004, fig. 9: pipelined copies of 1 MB by their size", X: "chunk", Y: "MB/s", Sizes: true}
	byChunk := Curve{Name: "1 MB"}
	for _, chunk := range []uint32{1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10} {
		rate, err := bandwidth(rendezvous.Stream, chunk, 2, window, 1<<20)
		if err != nil {
			return err
		}
		byChunk.Points = append(byChunk.Points, Point{float64(chunk), rate})
	}
	chunks.Curves = append(chunks.Curves, byChunk)
	r.Plots = append(r.Plots, plot, chunks)
	better := true
	for n := 32 << 10; n <= 256<<10; n *= 2 {
		read, err := bandwidth(rendezvous.GetCQE, 16<<10, 2, window, n)
		if err != nil {
			return err
		}
		write, err := bandwidth(rendezvous.RPut, 16<<10, 2, window, n)
		if err != nil {
			return err
		}
		better = better && write > read
	}
	basic, err := basicBandwidth(2)
	if err != nil {
		return err
	}
	pipelined, zero, ch3 := peak["pipelined copies of 16 KB"], peak["zero copy by remote read"], peak["CH3: remote write"]
	const raw = "the model's latency is the raw one; what MPICH2's own code adds, 1.5 us, the paper does not state apart"
	r.Rows = append(r.Rows,
		Row{
			Paper: "004 fig. 4", What: "basic ring: small latency", Unit: "us", Theirs: 18.6, Ours: small[eagerring.Basic], Law: "a remote write each for data, head and tail",
			Note: "here the three are under way at the same time; 18.6 us is three raw latencies one after another, and the paper's later designs have one",
		},
		Row{Paper: "004 fig. 5", What: "basic ring: bandwidth", Unit: "MB/s", Theirs: 230, Ours: basic, Law: "copy, transfer and copy of a part, one after another", Note: "of messages as large as the ring, 1 MB; the ring's size the paper does not state"},
		Row{Paper: "004 fig. 6", What: "piggybacked updates: small latency", Unit: "us", Theirs: 7.4, Ours: small[eagerring.PiggyBack], Law: "one remote write a message", Note: raw},
		Row{Paper: "004 fig. 8", What: "pipelined copies of 16 KB: bandwidth", Unit: "MB/s", Theirs: 500, Ours: pipelined, Law: "copies and transfers share the memory bus: three passes of each byte"},
		Row{Paper: "004, section 5", What: "zero copy: small latency", Unit: "us", Theirs: 7.6, Ours: small[eagerring.ZeroCopy], Law: "one remote write a message", Note: raw},
		Row{Paper: "004 fig. 11", What: "zero copy: bandwidth", Unit: "MB/s", Theirs: 857, Ours: zero, Law: "the wire's 870 MB/s less headers and round trips"},
		Row{Paper: "004 fig. 14", What: "CH3, remote write, against zero copy: bandwidth of large messages", Unit: "ratio", Theirs: 1, Ours: ch3 / zero, Law: "both leave the processor out"},
		Row{
			Paper: "004 figs. 14, 15", What: "CH3, remote write: more than zero copy at 32 to 256 KB", Unit: ordering, Theirs: 1, Ours: yes(better), Law: "remote reads and writes have the same wire",
			Note: "the paper's reason is fig. 15: its adapters write faster than they read at these sizes, by how much it states nowhere but in the plot; the model has one bandwidth for both",
		},
	)
	return nil
}
