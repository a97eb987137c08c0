package main

import (
	"fmt"
	"iter"
	"slices"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/pattern"
)

// messages yields the offset of the buffer and the size of each message of a pattern.
type messages = iter.Seq2[int, int]

// patternPage is the distance between buffers of one size, in bytes.
const patternPage = 8 << 10

// reuse measures half a round trip of messages for each pattern of buffer use (000,
// sections 5.1.1 and 5.2).
func (m *meter) reuse() error {
	if m.c.Size() != 2 {
		return fmt.Errorf("%d ranks: this test is between 2", m.c.Size())
	}
	out, err := buffer[byte](m, pattern.Extent)
	if err != nil {
		return err
	}
	in, err := buffer[byte](m, patternPage)
	if err != nil {
		return err
	}
	for _, n := range bench.ReuseSizes {
		one := func(yield func(int, int) bool) {
			for range m.method.ReuseTrips() {
				if !yield(0, n) {
					return
				}
			}
		}
		if err := m.patterned(out, in, "one buffer", n, one); err != nil {
			return err
		}
		spectrum := func(yield func(int, int) bool) {
			trips := 0
			for off := range pattern.Spectrum(bench.SpectrumStep, patternPage) {
				if trips++; (m.o.quick || m.o.trips > 0) && trips > m.method.ReuseTrips() || !yield(off, n) {
					return
				}
			}
		}
		if err := m.patterned(out, in, "1 to 1000 uses", n, spectrum); err != nil {
			return err
		}
	}
	for i := range pattern.Traces {
		t := &pattern.Traces[i]
		if err := m.patterned(out, in, "as "+t.Name, 0, t.Messages(m.method.ReuseTrips())); err != nil {
			return err
		}
	}
	return nil
}

// patterned measures and prints half a round trip of a pattern. Both ranks send from the
// same offsets.
func (m *meter) patterned(out, in []byte, op string, size int, all messages) error {
	if len(m.o.only) > 0 && !slices.Contains(m.o.only, op) {
		return nil
	}
	if err := m.warm(in); err != nil {
		return err
	}
	trips, begin := 0, time.Now()
	for off, n := range all {
		mark := byte(trips)
		out[off] = mark
		if m.first() {
			if err := outrigger.Send(m.ctx, m.c, out[off:off+n], 1, dataTag); err != nil {
				return err
			}
		}
		if _, err := outrigger.Recv(m.ctx, m.c, in[:n], 1-m.c.Rank(), dataTag); err != nil {
			return err
		}
		if in[0] != mark {
			return fmt.Errorf("%s: message %d begins with %d, want %d", op, trips, in[0], mark)
		}
		if !m.first() {
			if err := outrigger.Send(m.ctx, m.c, out[off:off+n], 0, dataTag); err != nil {
				return err
			}
		}
		trips++
	}
	us := time.Since(begin).Seconds() * 1e6 / float64(2*max(trips, 1))
	return m.print(bench.Figure{Test: bench.Reuse, Op: op, Bytes: size, US: us})
}

// warm makes round trips of one byte, for which no link registers memory.
func (m *meter) warm(in []byte) error {
	for range m.method.ReuseTrips() / 10 {
		if _, err := outrigger.Sendrecv(m.ctx, m.c, in[:1], 1-m.c.Rank(), ackTag, in[1:2], 1-m.c.Rank(), ackTag); err != nil {
			return err
		}
	}
	return m.c.Barrier(m.ctx)
}

// onesided measures puts and gets, each with the fence that ends it (000, section
// 5.1.2). A get has ended when it returns, and its fence is a barrier.
func (m *meter) onesided() error {
	if m.c.Size() != 2 {
		return fmt.Errorf("%d ranks: this test is between 2", m.c.Size())
	}
	most := bench.ReuseSizes[len(bench.ReuseSizes)-1]
	mem, err := buffer[byte](m, most)
	if err != nil {
		return err
	}
	exposed, err := outrigger.Alloc[byte](m.s, most)
	if err != nil {
		return err
	}
	w, err := outrigger.NewWindow(m.ctx, m.c, exposed)
	if err != nil {
		return err
	}
	for _, n := range bench.ReuseSizes {
		for _, op := range []string{"put", "get"} {
			if err := m.fenced(w, mem[:n], op); err != nil {
				return err
			}
		}
	}
	return w.Free(m.ctx)
}

func (m *meter) fenced(w *outrigger.Window[byte], mem []byte, op string) error {
	access := func(mark byte) error {
		if !m.first() {
			return nil
		}
		if op == "get" {
			return w.Get(m.ctx, mem, 1, 0)
		}
		mem[0] = mark
		if err := w.Put(m.ctx, mem, 1, 0); err != nil {
			return err
		}
		return w.Flush(m.ctx, 1)
	}
	trips := m.method.ReuseTrips() / 2
	begin := time.Now()
	for i := range trips {
		if err := access(byte(i)); err != nil {
			return err
		}
		if err := m.c.Barrier(m.ctx); err != nil {
			return err
		}
		if got := w.Local()[0]; op == "put" && !m.first() && got != byte(i) {
			return fmt.Errorf("put %d: the window begins with %d, want %d", i, got, byte(i))
		}
		if op == "put" { // the next put must not overwrite the value before it is checked
			if err := m.c.Barrier(m.ctx); err != nil {
				return err
			}
		}
	}
	us := time.Since(begin).Seconds() * 1e6 / float64(max(trips, 1))
	return m.print(bench.Figure{Test: bench.OneSided, Op: op, Bytes: len(mem), US: us})
}
