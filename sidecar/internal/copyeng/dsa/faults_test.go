package dsa

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// TestFaults checks for each fault what the device copies, what the processor copies, and what is
// counted. A copy is of 9,000 aligned bytes, thus 8,960 of the device and 40 of the processor.
func TestFaults(t *testing.T) {
	const all, tail = 9000, 40
	repeat := func(f dsamodel.Fault, n int) []dsamodel.Fault {
		var list []dsamodel.Fault
		for range n {
			list = append(list, f)
		}
		return list
	}
	type faults = []dsamodel.Fault
	for name, c := range map[string]struct {
		faults    faults
		processor uint64 // bytes
		want      Stats  // Faults, Errors, Fallbacks, Descriptors
	}{
		"none":                         {nil, tail, Stats{Descriptors: 1}},
		"read":                         {faults{{Status: 0x03, After: 5000}}, tail, Stats{Faults: 1, Descriptors: 2}},
		"write":                        {faults{{Status: 0x83, After: 5000}}, tail, Stats{Faults: 1, Descriptors: 2}},
		"backward":                     {faults{{Status: 0x83, After: 5000, Backward: true}}, tail, Stats{Faults: 1, Descriptors: 2}},
		"both pages":                   {faults{{Status: 0x03}, {Status: 0x83}}, tail, Stats{Faults: 2, Descriptors: 3}},
		"progress":                     {repeat(dsamodel.Fault{Status: 0x83, After: 1000}, 6), tail, Stats{Faults: 6, Descriptors: 7}},
		"no progress":                  {repeat(dsamodel.Fault{Status: 0x83}, 3), all, Stats{Faults: 3, Fallbacks: 1, Descriptors: 3}},
		"no progress after some":       {append(faults{{Status: 0x03, After: 1000}}, repeat(dsamodel.Fault{Status: 0x03}, 2)...), all - 1000, Stats{Faults: 3, Fallbacks: 1, Descriptors: 3}},
		"one byte at a time":           {repeat(dsamodel.Fault{Status: 0x03, After: 1}, 100), all - 9, Stats{Faults: 9, Fallbacks: 1, Descriptors: 9}},
		"fault behind the end":         {faults{{Status: 0x03, After: 8960}}, tail, Stats{Faults: 1, Descriptors: 1}},
		"more than there is":           {faults{{Status: 0x03, After: 10, Claim: 8961}}, all, Stats{Faults: 1, Fallbacks: 1, Descriptors: 1}},
		"page request":                 {faults{{Status: 0x04, After: 10}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"opcode":                       {faults{{Status: 0x10}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"flags":                        {faults{{Status: 0x11}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"size":                         {faults{{Status: 0x13}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"overlap":                      {faults{{Status: 0x16}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"completion address":           {faults{{Status: 0x1a, After: 8000}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"a status of the future":       {faults{{Status: 0x7e}}, all, Stats{Errors: 1, Fallbacks: 1, Descriptors: 1}},
		"late":                         {faults{{Delay: 30 * time.Millisecond}}, tail, Stats{Descriptors: 1}},
		"late fault, then an error":    {faults{{Status: 0x03, After: 64, Delay: time.Millisecond}, {Status: 0x22}}, all - 64, Stats{Faults: 1, Errors: 1, Fallbacks: 1, Descriptors: 2}},
		"other copies before the late": {faults{{Delay: 5 * time.Millisecond}}, tail, Stats{Descriptors: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &setup{options: dsamodel.Options{Window: 4, Fault: byTable(c.faults)}}
			ch := open(t, s)
			dst, src := aligned(all), pattern(all, 1)
			if !ch.Submit(dst, src, 0) {
				t.Fatal("refused")
			}
			finish(t, ch, 1, mustEnd(t))
			if !bytes.Equal(dst, src) {
				t.Error("wrong bytes")
			}
			got := ch.Stats()
			c.want.Copies, c.want.Writes, c.want.Refusals = 1, got.Writes, got.Refusals
			c.want.ProcessorBytes, c.want.DeviceBytes = c.processor, all-c.processor
			if got != c.want {
				t.Errorf("counted\n%+v, want\n%+v", got, c.want)
			}
			if ch.Err() != nil {
				t.Error(ch.Err())
			}
		})
	}
}

// byTable returns the fault of each descriptor in the order of arrival.
func byTable(list []dsamodel.Fault) func(int, dsamodel.Descriptor) dsamodel.Fault {
	return func(n int, _ dsamodel.Descriptor) dsamodel.Fault {
		if n < len(list) {
			return list[n]
		}
		return dsamodel.Fault{}
	}
}

// aligned returns memory that begins at a line.
func aligned(n int) []byte {
	mem := make([]byte, n+lineBytes)
	return mem[int(-addressOf(mem)&(lineBytes-1)):][:n]
}

// TestOrderOfEnds checks that a late first copy delays the ends of the others, and no more.
func TestOrderOfEnds(t *testing.T) {
	s := &setup{options: dsamodel.Options{Window: 4, Fault: byTable([]dsamodel.Fault{{Delay: 20 * time.Millisecond}})}}
	c := open(t, s)
	src := pattern(4096, 1)
	for i := range uint64(8) {
		if !c.Submit(aligned(4096), src, i) {
			t.Fatal("refused")
		}
	}
	finish(t, c, 8, mustEnd(t))
}

// TestPendingIsBounded checks the bound, and that a channel takes copies from done.
func TestPendingIsBounded(t *testing.T) {
	s := &setup{cfg: Config{Pending: 3}}
	c := open(t, s)
	src := pattern(4096, 1)
	for i := range uint64(3) {
		if !c.Submit(aligned(4096), src, i) {
			t.Fatal("refused")
		}
	}
	if c.Submit(aligned(4096), src, 3) || c.Pending() != 3 {
		t.Errorf("a fourth copy, %d pending", c.Pending())
	}
	next := uint64(3)
	check := mustEnd(t)
	finish(t, c, 10, func(token uint64, err error) {
		check(token, err)
		if next < 10 {
			if !c.Submit(nil, nil, next) {
				t.Error("refused in done")
			}
			next++
		}
	})
}

// TestPollIsBounded submits a copy of 0 bytes, which ends at once, from each end: each Poll reports
// one.
func TestPollIsBounded(t *testing.T) {
	c := open(t, &setup{})
	calls := 0
	done := func(uint64, error) {
		if calls++; calls < 100 && !c.Submit(nil, nil, 0) {
			t.Error("refused")
		}
	}
	done(0, nil)
	for range 50 {
		if n := c.Poll(done); n != 1 {
			t.Fatalf("%d ends by one Poll", n)
		}
	}
}

// TestMemoryIsGone copies from a file that was truncated: the end has an error, and the process
// lives.
func TestMemoryIsGone(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n = 64 << 10
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	src, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(src) })
	if err := f.Truncate(n / 2); err != nil {
		t.Fatal(err)
	}
	c := open(t, &setup{})
	dst := aligned(n)
	if !c.Submit(dst, src, 0) || !c.Submit(dst, src[:n/2], 1) {
		t.Fatal("refused")
	}
	var errs []error
	finish(t, c, 2, func(_ uint64, err error) { errs = append(errs, err) })
	if !errors.Is(errs[0], ErrMemory) || errs[1] != nil {
		t.Errorf("ends %v", errs)
	}
}
