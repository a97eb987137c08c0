package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// The method is that of hack/bench/mpibench.c, so that a ratio of the two is
// a ratio of systems and not of programs: see its header.

// figure is one line of a measurement.
type figure struct {
	Peer       string   `json:"peer"`
	Test       string   `json:"test"`
	Bytes      int      `json:"bytes"`
	Side       string   `json:"side,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	US         float64  `json:"us,omitempty"`
	USMin      float64  `json:"us_min,omitempty"`
	MBs        float64  `json:"mb_s,omitempty"`
	MsgS       float64  `json:"msg_s,omitempty"`
	Overlap    *float64 `json:"overlap,omitempty"`
	TransferUS float64  `json:"transfer_us,omitempty"`
	ComputeUS  float64  `json:"compute_us,omitempty"`
	TotalUS    float64  `json:"total_us,omitempty"`
}

const (
	repetitions = 5
	bytesMax    = 4 << 20
	dataTag     = 7
	ackTag      = 8
)

// rankOptions is what a measuring rank is told.
type rankOptions struct {
	peer    string
	private bool
	quick   bool
}

func rankCommand() *cobra.Command {
	var o rankOptions
	cmd := &cobra.Command{
		Use: "bench-rank", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), &o, os.Stdout) },
	}
	cmd.Flags().StringVar(&o.peer, "peer", "outrigger", "name in the output")
	cmd.Flags().BoolVar(&o.private, "private", false, "ordinary memory")
	cmd.Flags().BoolVar(&o.quick, "quick", false, "few iterations")
	return cmd
}

// meter measures between ranks 0 and 1.
type meter struct {
	ctx  context.Context
	o    *rankOptions
	c    *outrigger.Comm
	out  []byte
	in   []byte
	emit *json.Encoder
	// spent is what computing came to.
	spent uint64
}

func measure(ctx context.Context, o *rankOptions, w io.Writer) error {
	s, err := outrigger.Open(ctx, outrigger.Config{})
	if err != nil {
		return err
	}
	m := &meter{ctx: ctx, o: o, c: s.World(), out: make([]byte, bytesMax), in: make([]byte, bytesMax), emit: json.NewEncoder(w)}
	if m.c.Size() != 2 {
		return fmt.Errorf("bench needs 2 ranks, has %d", m.c.Size())
	}
	if !o.private {
		if m.out, err = outrigger.Alloc[byte](s, bytesMax); err != nil {
			return err
		}
		if m.in, err = outrigger.Alloc[byte](s, bytesMax); err != nil {
			return err
		}
	}
	for i := range m.out {
		m.out[i], m.in[i] = byte(i), byte(i)
	}
	for _, test := range []func() error{m.latencies, m.bandwidths, m.rate, m.overlaps} {
		if err := test(); err != nil {
			return err
		}
	}
	return s.Close()
}

func (m *meter) first() bool { return m.c.Rank() == 0 }

func (m *meter) print(f figure) error {
	if !m.first() {
		return nil
	}
	f.Peer = m.o.peer
	return m.emit.Encode(f)
}

// scale shortens a measurement for tests.
func (m *meter) scale(n int) int {
	if m.o.quick {
		return max(n/50, 1)
	}
	return n
}

// repeat takes the median and the minimum of the repetitions of run.
func repeat(run func() (float64, error)) (median, least float64, err error) {
	var all []float64
	for range repetitions {
		v, err := run()
		if err != nil {
			return 0, 0, err
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return all[repetitions/2], all[0], nil
}

func (m *meter) latencies() error {
	for n := 8; n <= bytesMax; n *= 2 {
		trips := 100
		if n <= 1<<10 {
			trips = 10_000
		} else if n <= 64<<10 {
			trips = 1_000
		}
		trips = m.scale(trips)
		if err := m.pingPong(n, min(100, trips)); err != nil {
			return err
		}
		median, least, err := repeat(func() (float64, error) {
			if err := m.c.Barrier(m.ctx); err != nil {
				return 0, err
			}
			begin := time.Now()
			err := m.pingPong(n, trips)
			return time.Since(begin).Seconds() * 1e6 / float64(2*trips), err
		})
		if err != nil {
			return err
		}
		if err := m.print(figure{Test: "latency", Bytes: n, US: median, USMin: least}); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) pingPong(n, trips int) error {
	for range trips {
		if m.first() {
			if err := outrigger.Send(m.ctx, m.c, m.out[:n], 1, dataTag); err != nil {
				return err
			}
		}
		if _, err := outrigger.Recv(m.ctx, m.c, m.in[:n], 1-m.c.Rank(), dataTag); err != nil {
			return err
		}
		if !m.first() {
			if err := outrigger.Send(m.ctx, m.c, m.out[:n], 0, dataTag); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *meter) bandwidths() error {
	for n := 64 << 10; n <= bytesMax; n *= 2 {
		width, windows := 64, 20
		if n > 1<<20 {
			windows = 10
		}
		if n == 4<<20 {
			width = 16
		}
		perSecond, err := m.stream(n, width, m.scale(windows), 1)
		if err != nil {
			return err
		}
		if err := m.print(figure{Test: "bandwidth", Bytes: n, MBs: perSecond * float64(n) / 1e6}); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) rate() error {
	perSecond, err := m.stream(8, 64, m.scale(1000), 10)
	if err != nil {
		return err
	}
	return m.print(figure{Test: "rate", Bytes: 8, MsgS: perSecond})
}

// stream sends windows of messages from rank 0 to rank 1 and returns the
// median of messages a second.
func (m *meter) stream(n, width, windows, warmUp int) (float64, error) {
	if err := m.windows(n, width, warmUp); err != nil {
		return 0, err
	}
	median, _, err := repeat(func() (float64, error) {
		if err := m.c.Barrier(m.ctx); err != nil {
			return 0, err
		}
		begin := time.Now()
		err := m.windows(n, width, windows)
		return float64(width*windows) / time.Since(begin).Seconds(), err
	})
	return median, err
}

func (m *meter) windows(n, width, count int) error {
	requests := make([]outrigger.Request, width)
	var ack [4]byte
	for range count {
		for i := range requests {
			var err error
			if m.first() {
				requests[i], err = outrigger.Isend(m.c, m.out[:n], 1, dataTag)
			} else {
				requests[i], err = outrigger.Irecv(m.c, m.in[:n], 0, dataTag)
			}
			if err != nil {
				return err
			}
		}
		if err := outrigger.WaitAll(m.ctx, requests); err != nil {
			return err
		}
		if !m.first() {
			if err := outrigger.Send(m.ctx, m.c, ack[:], 0, ackTag); err != nil {
				return err
			}
		} else if _, err := outrigger.Recv(m.ctx, m.c, ack[:], 1, ackTag); err != nil {
			return err
		}
	}
	return nil
}
