package copyeng

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestThreshold(t *testing.T) {
	win, lose, late := Row{Inline: 1000, Engine: 500, Last: 2000}, Row{Inline: 1000, Engine: 501, Last: 1000}, Row{Inline: 1000, Engine: 1, Last: 2001}
	cold := func(r Row, inline, engine, last int64) Row {
		r.ColdInline, r.ColdEngine, r.ColdLast = inline, engine, last
		return r
	}
	good, coldLose, coldLate := cold(win, 3000, 1500, 6000), cold(win, 3000, 1501, 3000), cold(win, 3000, 1, 6001)
	for name, c := range map[string]struct {
		rows []Row
		want uint64 // in units of leastBytes
	}{
		"always":               {[]Row{win, win, win}, 1},
		"the largest":          {[]Row{lose, late, win}, 3},
		"not the largest":      {[]Row{win, win, late}, 0},
		"a hole":               {[]Row{win, lose, win}, 3},
		"never":                {[]Row{lose, late, lose}, 0},
		"nothing measured":     {nil, 0},
		"both kinds of memory": {[]Row{good, good, good}, 1},
		"cached only":          {[]Row{coldLose, coldLate, coldLose}, 0},
		"late if not cached":   {[]Row{win, coldLate, good}, 3},
		"not cached only":      {[]Row{cold(lose, 3000, 1, 1), good, good}, 2},
	} {
		for i := range c.rows {
			c.rows[i].Bytes = uint64(i+1) * leastBytes
		}
		if got := threshold(c.rows); got != c.want*leastBytes {
			t.Errorf("%s: from %d on, want %d", name, got, c.want*leastBytes)
		}
	}
	if got := threshold([]Row{{Bytes: leastBytes - 1, Inline: 1000}, {Bytes: leastBytes, Inline: 1000}}); got != leastBytes {
		t.Errorf("copies are offloaded from %d on, and none below %d may be", got, leastBytes)
	}
}

// TestMeasure: each size is measured with cached memory, and with memory that is in no cache.
func TestMeasure(t *testing.T) {
	const tries = 100
	for range tries { // a machine on which it takes too long measures again
		rows, err := measure(new(CPU))
		if errors.Is(err, errSlow) {
			continue
		}
		if err != nil || len(rows) != len(sizes) {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for i, r := range rows {
			if r.Bytes != sizes[i] || r.Inline <= 0 || r.Last <= 0 || flushes != (r.ColdInline > 0 && r.ColdLast > 0) {
				t.Errorf("row %d is %+v", i, r)
			}
		}
		return
	}
	t.Errorf("none of %d measurements ended within %v", tries, measureMax)
}

// TestFlush: memory keeps its bytes when its lines are flushed, whatever its ends are.
func TestFlush(t *testing.T) {
	for _, x := range [][2]int{{0, 0}, {0, 1}, {63, 64}, {1, 4096}, {100, 65_000}} {
		b := make([]byte, 1<<16)
		for i := range b {
			b[i] = byte(i * 13)
		}
		flushLines(b[x[0]:x[1]])
		for i := range b {
			if b[i] != byte(i*13) {
				t.Fatalf("byte %d has changed", i)
			}
		}
	}
	flushLines(nil)
}

// slow is a channel that is slower than the processor: its engine's share is a whole copy and
// more.
type slow struct {
	CPU
	closed bool
	fails  error
}

func (s *slow) Submit(dst, src []byte, token uint64) bool {
	for begun := time.Now(); time.Since(begun) < 200*time.Microsecond; { // a copy takes 5
	}
	return s.CPU.Submit(dst, src, token)
}

func (s *slow) Poll(done func(uint64, error)) int {
	return s.CPU.Poll(func(token uint64, _ error) { done(token, s.fails) })
}

func (s *slow) Close() error { s.closed = true; return nil }

// TestLoserIsNotUsed checks that a channel that is slower than inline copies, or that fails,
// is closed and reported.
func TestLoserIsNotUsed(t *testing.T) {
	for name, ch := range map[string]*slow{"slow": {}, "failing": {fails: errors.New("no power")}} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Kind: "slow", Open: func(int) ([]*Lane, error) { return []*Lane{{Channel: ch}}, nil }})
			if c.Takes(leastBytes-1) || c.state != stateClosed {
				t.Error("a small transfer opens channels")
			}
			for c.state != stateLost {
				if c.Takes(1 << 30) {
					t.Fatal("it is used")
				}
				runtime.Gosched()
			}
			s := c.Stats()
			if !ch.closed || s.Measured.Threshold != 0 || s.Kind != "slow" {
				t.Errorf("closed: %v; %+v", ch.closed, s)
			}
			if s.Measured.Cause == errSlow.Error() && ch.fails == nil {
				return // other processes have the processor, which is a reason, too
			}
			if cause := s.Measured.Cause; ch.fails != nil && !strings.Contains(cause, "no power") || ch.fails == nil && cause != "" {
				t.Errorf("its cause is %q", cause)
			}
			if ch.fails == nil && len(s.Measured.Rows) != len(sizes) {
				t.Errorf("%d sizes are measured", len(s.Measured.Rows))
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloseDuringMeasurement checks that a job that ends meanwhile leaves no thread.
func TestCloseDuringMeasurement(t *testing.T) {
	c := New(Config{Kind: "helper", Open: func(bell int) ([]*Lane, error) {
		h := NewHelper(bell)
		return []*Lane{{Channel: h, Alert: h.Alert}}, nil
	}})
	c.Takes(1 << 20)
	if err := c.Close(); err != nil || c.Takes(1<<30) {
		t.Errorf("closing: %v", err)
	}
}
