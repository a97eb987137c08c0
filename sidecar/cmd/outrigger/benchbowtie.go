package main

import (
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// bowtie measures rounds in which pairs of ranks send to each other at the same time
// (001, section 4.1.1), and an all-to-all in groups of four (section 4.2.2).
func (m *meter) bowtie() error {
	if m.c.Size()%2 != 0 {
		return fmt.Errorf("%d ranks do not form pairs", m.c.Size())
	}
	most := bench.BowtieSizes[len(bench.BowtieSizes)-1]
	out, err := buffer[byte](m, most)
	if err != nil {
		return err
	}
	in, err := buffer[byte](m, 4*most)
	if err != nil {
		return err
	}
	for i := range out {
		out[i] = sent
	}
	half := m.c.Size() / 2
	pair := (m.c.Rank() + half) % m.c.Size() // the pods have consecutive ranks
	for _, n := range bench.BowtieSizes {
		if err := m.rounds("bowtie", n, func() error { return m.exchange(out[:n], in, []int{pair}, []int{pair}) }); err != nil {
			return err
		}
		if m.c.Size()%4 != 0 {
			continue
		}
		all := func() error {
			for j := 0; j < m.c.Size(); j += 4 {
				var to, from []int
				for k := range 4 {
					to = append(to, (m.c.Rank()+j+k)%m.c.Size())
					from = append(from, (m.c.Rank()+m.c.Size()-j-k)%m.c.Size())
				}
				if err := m.exchange(out[:n], in, to, from); err != nil {
					return err
				}
			}
			return nil
		}
		if err := m.rounds("all-to-all", n, all); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends out to the ranks in to, receives a message from each rank in from into
// consecutive parts of in, and waits for all of them.
func (m *meter) exchange(out, in []byte, to, from []int) error {
	requests := make([]outrigger.Request, 0, len(to)+len(from))
	n := len(out)
	for i, p := range from {
		in[(i+1)*n-1] = unsent
		r, err := outrigger.Irecv(m.c, in[i*n:(i+1)*n], p, dataTag)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	for _, p := range to {
		r, err := outrigger.Isend(m.c, out, p, dataTag)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	if err := outrigger.WaitAll(m.ctx, requests); err != nil {
		return err
	}
	for i, p := range from {
		if in[(i+1)*n-1] != sent {
			return fmt.Errorf("the last of %d bytes from rank %d has not arrived", n, p)
		}
	}
	return nil
}

// rounds measures and prints the time of a round.
func (m *meter) rounds(op string, n int, round func() error) error {
	rounds := m.method.BowtieRounds()
	for range rounds/10 + 1 {
		if err := round(); err != nil {
			return err
		}
	}
	if err := m.c.Barrier(m.ctx); err != nil {
		return err
	}
	begin := time.Now()
	for range rounds {
		if err := round(); err != nil {
			return err
		}
	}
	if err := m.c.Barrier(m.ctx); err != nil {
		return err
	}
	us := time.Since(begin).Seconds() * 1e6 / float64(rounds)
	return m.print(bench.Figure{Test: bench.Bowtie, Op: op, Bytes: n, Ranks: m.c.Size(), US: us})
}

// channels measures half a round trip of small messages and the bandwidth of large ones.
func (m *meter) channels() error {
	if err := m.pair(); err != nil {
		return err
	}
	for _, n := range bench.ChannelSmall {
		s := m.method.ChannelSeries(n)
		m.clearInput(n)
		if err := m.pingPong(n, s.WarmUp); err != nil {
			return err
		}
		begin := time.Now()
		if err := m.pingPong(n, s.Count); err != nil {
			return err
		}
		us := time.Since(begin).Seconds() * 1e6 / float64(2*s.Count)
		if err := m.checkInput(n); err != nil {
			return err
		}
		if err := m.print(bench.Figure{Test: bench.Channels, Op: "latency", Bytes: n, US: us}); err != nil {
			return err
		}
	}
	for _, n := range bench.ChannelLarge {
		perSecond, err := m.stream(m.method.ChannelSeries(n))
		if err != nil {
			return err
		}
		if err := m.print(bench.Figure{Test: bench.Channels, Op: "bandwidth", Bytes: n, MBs: perSecond * float64(n) / 1e6}); err != nil {
			return err
		}
	}
	return nil
}
