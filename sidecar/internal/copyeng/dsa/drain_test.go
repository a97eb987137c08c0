package dsa

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// batchOf submits copies, and returns their destinations. All are from src.
func batchOf(t *testing.T, c *Channel, n int, src []byte) [][]byte {
	t.Helper()
	dst := make([][]byte, n)
	for i := range dst {
		dst[i] = make([]byte, len(src))
		if !c.Submit(dst[i], src, uint64(i)) {
			t.Fatal("refused")
		}
	}
	return dst
}

// TestDeath ends the device in several ways in the middle of a message of 40 copies, and expects
// all 40, and that later ones are copied by the processor.
func TestDeath(t *testing.T) {
	for name, s := range map[string]struct {
		fault dsamodel.Fault
		late  time.Duration
		cause string // regular expression
	}{
		"breaks":            {dsamodel.Fault{Break: true, After: 3000}, 0, "broken pipe|connection reset|reports an error"},
		"breaks at once":    {dsamodel.Fault{Break: true}, 0, "broken pipe|connection reset|reports an error"},
		"loses descriptors": {dsamodel.Fault{Lost: true}, 100 * time.Millisecond, "have not completed for 100ms"},
		"fails":             {dsamodel.Fault{Status: 0x10}, 0, `8 descriptors in a row failed, the last with status 0x10 \(opcode\)`},
		"fails by address":  {dsamodel.Fault{Status: 0xa2}, 0, `status 0xa2 \(address translation\)`},
	} {
		t.Run(name, func(t *testing.T) {
			m := &setup{cfg: Config{Late: s.late}, options: dsamodel.Options{Fault: from(20, s.fault)}}
			c := open(t, m)
			src := pattern(70_000, 1)
			dst := batchOf(t, c, 40, src)
			done := mustEnd(t)
			finish(t, c, 40, done)
			for i := uint64(40); c.Err() == nil; i++ { // a device that breaks behind its last descriptor
				c.Submit(make([]byte, len(src)), src, i)
				finish(t, c, 1, done)
			}
			if !regexp.MustCompile(s.cause).MatchString(c.Err().Error()) {
				t.Errorf("cause: %v, want %q", c.Err(), s.cause)
			}
			for i := range dst {
				if !bytes.Equal(dst[i], src) {
					t.Fatalf("copy %d is wrong", i)
				}
			}
			afterwards(t, c)
		})
	}
}

// afterwards checks a channel that has ended: it copies all, in order, counts it, and uses the
// device for nothing.
func afterwards(t *testing.T, c *Channel) {
	t.Helper()
	before := c.Stats()
	src := pattern(5000, 2)
	dst := batchOf(t, c, 5, src)
	if !bytes.Equal(dst[4], src) {
		t.Error("a copy after the end is not copied by Submit")
	}
	finish(t, c, 5, mustEnd(t))
	for i := range dst {
		if !bytes.Equal(dst[i], src) {
			t.Fatalf("copy %d after the end is wrong", i)
		}
	}
	s := c.Stats()
	if s.Fallbacks != before.Fallbacks+5 || s.Writes != before.Writes || s.ProcessorBytes != before.ProcessorBytes+5*5000 {
		t.Errorf("%+v, before %+v", s, before)
	}
	if err := c.Close(); err != nil || errors.Is(c.Err(), ErrDraining) {
		t.Error(err, c.Err())
	}
}

// from returns a fault for all descriptors from number n.
func from(n int, f dsamodel.Fault) func(int, dsamodel.Descriptor) dsamodel.Fault {
	return func(i int, _ dsamodel.Descriptor) dsamodel.Fault {
		if i < n {
			return dsamodel.Fault{}
		}
		return f
	}
}

// TestReportedError checks that an error of the device ends the channel long before Late if a
// descriptor does not complete, and not if all do, or if it was there before.
func TestReportedError(t *testing.T) {
	lost := from(3, dsamodel.Fault{Lost: true})
	t.Run("lost", func(t *testing.T) {
		m := &setup{cfg: Config{Late: time.Hour}, options: dsamodel.Options{Fault: lost}}
		c := open(t, m)
		if err := m.device.ReportError(); err != nil {
			t.Fatal(err)
		}
		src := pattern(5000, 1)
		dst := batchOf(t, c, 10, src)
		finish(t, c, 10, mustEnd(t))
		if !bytes.Equal(dst[9], src) || !strings.Contains(c.Err().Error(), "reports an error") {
			t.Error(c.Err())
		}
	})
	t.Run("of another process", func(t *testing.T) {
		m := &setup{cfg: Config{suspect: time.Hour}}
		c := open(t, m)
		if err := m.device.ReportError(); err != nil {
			t.Fatal(err)
		}
		batchOf(t, c, 10, pattern(5000, 1))
		finish(t, c, 10, mustEnd(t))
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
	t.Run("before", func(t *testing.T) {
		m := &setup{options: dsamodel.Options{Fault: from(0, dsamodel.Fault{Delay: 5 * suspectAfter})}}
		c := open(t, m)
		c.unreliable = true // Open asks Queue.Failed, see TestOpenNotesAnError
		if err := m.device.ReportError(); err != nil {
			t.Fatal(err)
		}
		batchOf(t, c, 1, pattern(5000, 1))
		finish(t, c, 1, mustEnd(t))
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

// TestDrainIsAwaited checks that no copy in flight ends while the driver waits for the device, that
// copies which do not concern its memory are done, and that all end afterwards.
func TestDrainIsAwaited(t *testing.T) {
	hold := make(chan struct{})
	m := &setup{
		cfg:     Config{Late: 10 * time.Millisecond},
		options: dsamodel.Options{Hold: hold, Fault: from(0, dsamodel.Fault{Lost: true})},
	}
	c := open(t, m)
	src := pattern(5000, 1)
	dst := batchOf(t, c, 3, src)
	for c.Err() == nil {
		c.Poll(func(token uint64, err error) { t.Fatalf("copy %d ended: %v", token, err) })
	}
	other := make([]byte, 5000)
	if !c.Submit(other, src, 3) || !bytes.Equal(other, src) {
		t.Error("another copy is not done by the processor at once")
	}
	if !c.Submit(other, dst[0], 4) { // it needs the first copy
		t.Fatal("refused")
	}
	for range 1000 {
		c.Poll(func(token uint64, err error) { t.Fatalf("copy %d ended before the device: %v", token, err) })
	}
	if !errors.Is(c.Err(), ErrDraining) {
		t.Errorf("%v does not say that the device may still write", c.Err())
	}
	close(hold)
	finish(t, c, 5, mustEnd(t))
	for _, b := range append(dst, other) {
		if !bytes.Equal(b, src) {
			t.Error("wrong bytes")
		}
	}
	afterwards(t, c)
}

// TestClose closes a channel with copies in flight: when Close returns, the device writes nothing.
func TestClose(t *testing.T) {
	m := &setup{options: dsamodel.Options{Fault: from(5, dsamodel.Fault{Delay: 50 * time.Millisecond})}}
	c := open(t, m)
	src := pattern(5000, 1)
	dst := batchOf(t, c, 10, src)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, b := range dst { // the race detector sees a device that still writes
		clear(b)
	}
	clear(src)
	time.Sleep(100 * time.Millisecond)
	for i, b := range dst {
		if len(bytes.Trim(b, "\x00")) != 0 {
			t.Errorf("destination %d was written after Close", i)
		}
	}
	if c.Submit(dst[0], src, 0) || c.Poll(func(uint64, error) { t.Error("an end") }) != 0 || c.Close() != nil {
		t.Error("a closed channel works")
	}
}

// TestCloseIsBounded closes a channel whose driver waits for ever.
func TestCloseIsBounded(t *testing.T) {
	hold := make(chan struct{})
	m := &setup{
		cfg:     Config{Drain: 20 * time.Millisecond},
		options: dsamodel.Options{Hold: hold, Fault: from(0, dsamodel.Fault{Lost: true})},
	}
	c := open(t, m)
	batchOf(t, c, 3, pattern(5000, 1))
	if err := c.Close(); !errors.Is(err, ErrDraining) {
		t.Errorf("%v", err)
	}
	abandoned.Lock()
	n := len(abandoned.channels)
	kept := n > 0 && abandoned.channels[n-1] == c && c.copies[0].dst != nil
	abandoned.Unlock()
	if !kept {
		t.Error("the memory of the copies is not kept")
	}
	close(hold)
	<-c.drained
}
