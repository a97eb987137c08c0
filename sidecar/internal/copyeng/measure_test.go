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
	for name, c := range map[string]struct {
		rows []Row
		want uint64
	}{
		"always":           {[]Row{win, win, win}, 1},
		"the largest":      {[]Row{lose, late, win}, 3},
		"not the largest":  {[]Row{win, win, late}, 0},
		"a hole":           {[]Row{win, lose, win}, 3},
		"never":            {[]Row{lose, late, lose}, 0},
		"nothing measured": {nil, 0},
	} {
		for i := range c.rows {
			c.rows[i].Bytes = uint64(i + 1)
		}
		if got := threshold(c.rows); got != c.want {
			t.Errorf("%s: from %d on, want %d", name, got, c.want)
		}
	}
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
