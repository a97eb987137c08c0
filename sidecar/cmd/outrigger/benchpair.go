package main

import (
	"bytes"
	"fmt"
	"time"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/bench"
)

// Tags of the messages between two ranks.
const (
	dataTag = 7
	ackTag  = 8
)

func (m *meter) latencies() error {
	for _, s := range m.method.Latency() {
		m.clearInput(s.Bytes)
		if err := m.pingPong(s.Bytes, s.WarmUp); err != nil {
			return err
		}
		median, least, err := repeat(func() (float64, error) {
			begin := time.Now()
			err := m.pingPong(s.Bytes, s.Count)
			return time.Since(begin).Seconds() * 1e6 / float64(2*s.Count), err
		})
		if err == nil {
			err = m.checkInput(s.Bytes)
		}
		if err != nil {
			return err
		}
		if err := m.print(bench.Figure{Test: bench.Latency, Bytes: s.Bytes, US: median, USMin: least}); err != nil {
			return err
		}
	}
	return nil
}

// self measures the time of a small message of a rank to itself.
func (m *meter) self() error {
	s := m.method.Self()
	out, in := make([]byte, s.Bytes), make([]byte, s.Bytes)
	for i := range out {
		out[i] = sent
	}
	pass := func(n int) error {
		for range n {
			r, err := outrigger.Irecv(m.c, in, m.c.Rank(), dataTag)
			if err == nil {
				err = outrigger.Send(m.ctx, m.c, out, m.c.Rank(), dataTag)
			}
			if err == nil {
				_, err = r.Wait(m.ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := pass(s.WarmUp); err != nil {
		return err
	}
	median, least, err := repeat(func() (float64, error) {
		begin := time.Now()
		err := pass(s.Count)
		return time.Since(begin).Seconds() * 1e6 / float64(s.Count), err
	})
	if err == nil && !bytes.Equal(in, out) {
		err = fmt.Errorf("wrong data: rank %d did not receive what it sent to itself", m.c.Rank())
	}
	if err != nil {
		return err
	}
	return m.print(bench.Figure{Test: bench.Self, Bytes: s.Bytes, US: median, USMin: least})
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
	for _, s := range m.method.Bandwidth() {
		perSecond, err := m.stream(s)
		if err != nil {
			return err
		}
		if err := m.print(bench.Figure{Test: bench.Bandwidth, Bytes: s.Bytes, MBs: perSecond * float64(s.Bytes) / 1e6}); err != nil {
			return err
		}
	}
	return nil
}

func (m *meter) rate() error {
	s := m.method.Rate()
	perSecond, err := m.stream(s)
	if err != nil {
		return err
	}
	return m.print(bench.Figure{Test: bench.Rate, Bytes: s.Bytes, MsgS: perSecond})
}

// stream sends windows of messages from rank 0 to rank 1 and returns the
// median of messages per second.
func (m *meter) stream(s bench.Series) (float64, error) {
	requests := make([]outrigger.Request, s.Window)
	m.clearInput(s.Bytes)
	if err := m.windows(s.Bytes, s.WarmUp, requests); err != nil {
		return 0, err
	}
	median, _, err := repeat(func() (float64, error) {
		begin := time.Now()
		err := m.windows(s.Bytes, s.Count, requests)
		return float64(s.Window*s.Count) / time.Since(begin).Seconds(), err
	})
	if err == nil && !m.first() {
		err = m.checkInput(s.Bytes)
	}
	return median, err
}

func (m *meter) windows(n, count int, requests []outrigger.Request) error {
	for range count {
		if err := m.window(n, requests); err != nil {
			return err
		}
	}
	return nil
}

// window transfers a window of messages from rank 0 to rank 1, and one acknowledgement
// back.
func (m *meter) window(n int, requests []outrigger.Request) error {
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
	var ack [4]byte
	if !m.first() {
		return outrigger.Send(m.ctx, m.c, ack[:], 0, ackTag)
	}
	_, err := outrigger.Recv(m.ctx, m.c, ack[:], 1, ackTag)
	return err
}

// clearInput makes the receive buffer differ from the data that will be sent.
func (m *meter) clearInput(n int) {
	for i := range m.in[:n] {
		m.in[i] = unsent
	}
}

// checkInput returns an error if the data did not arrive, so that the time of a lost
// message is not reported.
func (m *meter) checkInput(n int) error {
	if !bytes.Equal(m.in[:n], m.out[:n]) {
		return fmt.Errorf("wrong data: rank %d did not receive the %d bytes that were sent", m.c.Rank(), n)
	}
	return nil
}

// Values of the bytes in the buffers of the tests between two ranks.
const (
	sent   = 1
	unsent = 2
)
