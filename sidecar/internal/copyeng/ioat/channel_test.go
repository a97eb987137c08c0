package ioat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/ioat/ioatmodel"
)

var seed = flag.Uint64("ioat.seed", uint64(time.Now().UnixNano()), "seed of random copies")

const arenaBytes = 2 << 20

// bench is a channel over a model, and memory with a copy of what must be in it.
type bench struct {
	t        *testing.T
	m        *ioatmodel.Model
	c        *Channel
	mem      []byte
	want     []byte
	r        *rand.Rand
	next     uint64 // token of the next copy
	reported uint64 // token whose end is reported next
}

func newBench(t *testing.T, cfg ioatmodel.Config, opt Options) *bench {
	t.Helper()
	t.Logf("-ioat.seed=%d", *seed)
	b := &bench{t: t, m: ioatmodel.New(cfg), mem: make([]byte, arenaBytes), r: rand.New(rand.NewPCG(*seed, 0))}
	opt.now = clock(b.m)
	c, err := Open(b.m, opt)
	if err != nil {
		t.Fatal(err)
	}
	b.c = c
	t.Cleanup(func() {
		if err := c.Close(); err != nil && c.dead == nil {
			t.Error(err)
		}
	})
	// The memory is adjacent for the process and not for the device.
	const odd = 512<<10 - 111
	for at := 0; at < arenaBytes; at += odd {
		if err := c.Map(b.mem[at:min(at+odd, arenaBytes)]); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(b.mem); i += 8 {
		binary.LittleEndian.PutUint64(b.mem[i:], b.r.Uint64())
	}
	b.want = bytes.Clone(b.mem)
	return b
}

// clock is a clock that runs only while nothing happens in the model, so that a busy machine
// does not make the model look slow.
func clock(m *ioatmodel.Model) func() time.Time {
	at := time.Unix(0, 0)
	return func() time.Time {
		runtime.Gosched() // with one processor, the model would wait for the end of a time slice
		if m.Settled() {
			at = at.Add(20 * time.Microsecond)
		}
		return at
	}
}

// copy submits a copy between offsets, and polls until there is room for it.
func (b *bench) copy(dst, src, n int) {
	b.t.Helper()
	for !b.c.Submit(b.mem[dst:], b.mem[src:src+n:src+n], b.next) {
		b.poll()
	}
	b.next++
	copy(b.want[dst:], b.want[src:src+n])
}

func (b *bench) poll() {
	b.t.Helper()
	n := b.c.Poll(func(token uint64, err error) {
		if err != nil || token != b.reported {
			b.t.Fatalf("end of copy %d: %v, want that of copy %d", token, err, b.reported)
		}
		b.reported++
	})
	if int(b.next-b.reported) > b.c.Pending() {
		b.t.Fatalf("%d copies have ended of %d and %d are pending; %d reported", b.reported, b.next, b.c.Pending(), n)
	}
}

// drain waits for all ends and compares the memory.
func (b *bench) drain() {
	b.t.Helper()
	for b.c.Pending() > 0 {
		b.poll()
	}
	if b.reported != b.next {
		b.t.Fatalf("%d copies, %d ends", b.next, b.reported)
	}
	b.same()
}

func (b *bench) same() {
	b.t.Helper()
	if bytes.Equal(b.mem, b.want) {
		return
	}
	for i := range b.mem {
		if b.mem[i] != b.want[i] {
			b.t.Fatalf("after %d copies, byte %d is %#x, want %#x", b.next, i, b.mem[i], b.want[i])
		}
	}
}

// size is the length of a copy: odd, and rarely long.
func (b *bench) size() int {
	switch n := b.r.IntN(1000); {
	case n < 900:
		return b.r.IntN(2000)
	case n < 995:
		return b.r.IntN(40000)
	default:
		return b.r.IntN(300000)
	}
}

// apart makes copies from the lower half to the upper half of the memory, in rotation, so that
// many are in the device at once.
func (b *bench) apart(copies int) {
	b.t.Helper()
	at := arenaBytes / 2
	for i := range copies {
		n := max(b.size(), 1)
		if at+n > arenaBytes {
			at = arenaBytes/2 + b.r.IntN(64)
		}
		b.copy(at, b.r.IntN(arenaBytes/2-n), n)
		at += n + b.r.IntN(3)
		if b.r.IntN(8) == 0 {
			b.poll()
		}
		if i%2000 == 1999 {
			b.drain()
		}
	}
	b.drain()
}

// anywhere makes copies whose memory overlaps that of pending ones, or itself.
func (b *bench) anywhere(copies int) {
	b.t.Helper()
	for i := range copies {
		n := b.size()
		within := arenaBytes - n
		if b.r.IntN(2) == 0 {
			within = min(within, 100000) // most copies depend on each other here
		}
		b.copy(b.r.IntN(within), b.r.IntN(within), n)
		if i%2000 == 1999 {
			b.drain()
		}
	}
	b.drain()
}

// TestCopies makes 50,000 copies of odd sizes and alignments, with devices of all versions. The
// number of descriptors exceeds that of the 16-bit counter.
func TestCopies(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    ioatmodel.Config
		opt    Options
		copies int
	}{
		"short descriptors": {ioatmodel.Config{XferCap: 12}, Options{}, 50000},
		"version 3.0":       {ioatmodel.Config{Version: 0x30, ID: 0x3c20}, Options{}, 1000},
		"version 3.4":       {ioatmodel.Config{Version: 0x34}, Options{Pending: 7}, 1000},
		"Skylake":           {ioatmodel.Config{ID: 0x2021}, Options{}, 1000},
		"conventional":      {ioatmodel.Config{Conventional: true}, Options{}, 1000},
		"third channel":     {ioatmodel.Config{Channels: 3}, Options{Channel: 2, Pending: 1}, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.cfg, c.opt)
			b.apart(c.copies / 2)
			b.anywhere(c.copies / 2)
			s := b.c.Stats()
			if s.Copies != uint64(c.copies) || s.Recoveries != 0 || s.Halts != 0 || b.c.Err() != nil {
				t.Errorf("%+v, %v", s, b.c.Err())
			}
			if name == "short descriptors" && s.Descriptors < 1<<16 {
				t.Errorf("%d descriptors: the counter has not wrapped around", s.Descriptors)
			}
			if got := b.m.Counts(); got.Copies != s.Descriptors || got.Bytes != s.Bytes-s.FallbackBytes {
				t.Errorf("the device has executed %+v, and the channel has counted %+v", got, s)
			}
		})
	}
}

// TestFaults: with every fault, no byte is wrong and no end is lost.
func TestFaults(t *testing.T) {
	type fault = ioatmodel.Fault
	type faults []ioatmodel.Fault
	for name, tt := range map[string]struct {
		faults
		ok   func(s Stats) bool // of 800 copies that the device can make
		dead string
	}{
		"late":                      {faults{{Kind: ioatmodel.Late, Every: 53, Reads: 3}}, func(s Stats) bool { return s == Stats{Late: s.Late} }, ""},
		"word lost":                 {faults{{Kind: ioatmodel.LoseWord, Every: 1}}, func(s Stats) bool { return s.Late > 0 && s == Stats{Late: s.Late} }, ""},
		"words lost":                {faults{{Kind: ioatmodel.LoseWord, Every: 3}}, func(s Stats) bool { return s == Stats{Late: s.Late} }, ""},
		"word wrong":                {faults{{Kind: ioatmodel.WrongWord, Every: 53}}, func(s Stats) bool { return s == Stats{Recoveries: s.Recoveries} }, ""},
		"doorbell lost":             {faults{{Kind: ioatmodel.LoseDoorbell, Every: 21}}, func(s Stats) bool { return s == Stats{Rerung: s.Rerung} }, ""},
		"every other doorbell lost": {faults{{Kind: ioatmodel.LoseDoorbell, Every: 2}}, func(s Stats) bool { return s == Stats{Rerung: s.Rerung, Recoveries: s.Recoveries} }, ""},
		"hangs":                     {faults{{Kind: ioatmodel.Hang, Every: 53}}, func(s Stats) bool { return s.Recoveries > 10 && s == Stats{Recoveries: s.Recoveries} }, ""},
		"suspended":                 {faults{{Kind: ioatmodel.Suspend, Every: 53}}, func(s Stats) bool { return s.Recoveries > 10 && s == Stats{Recoveries: s.Recoveries} }, ""},
		"halts in copies":           {faults{{Kind: ioatmodel.HaltLater, Every: 43, Bit: 9}}, halts, ""},
		"halts, is late, and loses": {faults{
			{Kind: ioatmodel.HaltLater, Every: 111, Bit: 8},
			{Kind: ioatmodel.Late, Every: 107, Reads: 4},
			{Kind: ioatmodel.LoseDoorbell, Every: 13},
			{Kind: ioatmodel.LoseWord, Every: 7},
			{Kind: ioatmodel.Hang, Every: 205},
		}, func(s Stats) bool { return s.Halts > 0 && s.Recoveries > s.Halts && s.FallbackCopies > 0 }, ""},
		"always halts":      {faults{{Kind: ioatmodel.HaltLater, Every: 1, Bit: 1}}, func(s Stats) bool { return s.Halts == 4 && s.Recoveries == 3 && s.FallbackCopies == 800 }, "no copy after 3 resets"},
		"never starts":      {faults{{Kind: ioatmodel.Hang, Every: 1}}, func(s Stats) bool { return s.Halts == 0 && s.Recoveries == 3 && s.FallbackCopies == 800 }, "active and makes no progress"},
		"dies in a message": {faults{{Kind: ioatmodel.HangForever, On: 400}}, func(s Stats) bool { return s.Recoveries == 0 && s.FallbackCopies > 300 && s.FallbackCopies < 500 }, "does not end its reset"},
		"vanishes":          {faults{{Kind: ioatmodel.Vanish, On: 400}}, func(s Stats) bool { return s.Recoveries == 0 && s.FallbackCopies > 300 && s.FallbackCopies < 500 }, "vanished"},
	} {
		t.Run(name, func(t *testing.T) { testFault(t, tt.faults, tt.ok, tt.dead) })
	}
	for bit := range uint(13) {
		t.Run(fmt.Sprintf("halts with bit %d", bit), func(t *testing.T) {
			testFault(t, []fault{{Kind: ioatmodel.Halt, Every: 41, Bit: bit}}, halts, "")
		})
	}
}

// halts: each halt costs the processor one copy, and the channel goes on.
func halts(s Stats) bool {
	return s.Halts > 10 && s == Stats{Halts: s.Halts, Recoveries: s.Halts, FallbackCopies: s.Halts, FallbackBytes: s.FallbackBytes}
}

func testFault(t *testing.T, faults []ioatmodel.Fault, ok func(Stats) bool, dead string) {
	b := newBench(t, ioatmodel.Config{XferCap: 16, Version: 0x32, Faults: faults}, Options{Hang: 20 * time.Millisecond})
	b.apart(800)
	s := b.c.Stats()
	s.Held, s.Copies, s.Bytes, s.Descriptors = 0, 0, 0, 0
	if !ok(s) {
		t.Errorf("%+v", s)
	}
	b.anywhere(200)
	err := b.c.Err()
	if (err != nil) != (dead != "") || err != nil && !strings.Contains(err.Error(), dead) {
		t.Errorf("the channel is dead: %v; want %q", err, dead)
	}
	if dead != "" {
		b.m.Revive()
		b.same()
	}
}

// TestChain: each copy reads what the previous one writes, in memory that no other copy is near.
func TestChain(t *testing.T) {
	b := newBench(t, ioatmodel.Config{}, Options{})
	for i := range 100 {
		b.copy((i+1)*1000, i*1000, 1000)
	}
	b.drain()
	if s := b.c.Stats(); s.Held < 90 || s.FallbackCopies != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBadMemory: copies in memory that the device cannot access although it was mapped are made
// by the processor, one halt each, and those between them by the device.
func TestBadMemory(t *testing.T) {
	b := newBench(t, ioatmodel.Config{}, Options{})
	bad := b.c.mem[1]
	if err := b.m.Unmap(bad.mem, bad.iova); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if i%3 == 0 {
			b.copy(arenaBytes/2+i*1000, int(bad.start-b.c.mem[0].start)+i*1000, 1000)
		} else {
			b.copy(arenaBytes/2+i*1000, i*1000, 1000)
		}
	}
	b.drain()
	b.c.mem = append(b.c.mem[:1], b.c.mem[2:]...) // it is unmapped already
	if s := b.c.Stats(); s.Halts != 100 || s.Recoveries != 100 || s.FallbackCopies != 100 || b.c.Err() != nil {
		t.Errorf("%+v, %v", s, b.c.Err())
	}
	if n := b.m.Counts(); n.Copies != 300 || n.Halts != 100 {
		t.Errorf("the device has executed %+v, want each descriptor once", n)
	}
}

// TestLong: a copy that needs more descriptors than the device may have at once is made by the
// device, or by the processor if it fails before all of its descriptors are posted.
func TestLong(t *testing.T) {
	for name, c := range map[string]struct {
		faults    []ioatmodel.Fault
		fallbacks uint64
	}{
		"succeeds": {nil, 0},
		"halts":    {[]ioatmodel.Fault{{Kind: ioatmodel.Halt, On: 1}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, ioatmodel.Config{XferCap: 12, Faults: c.faults}, Options{})
			const n = arenaBytes/2 - 3
			b.copy(arenaBytes/2, 1, n)
			b.copy(100, arenaBytes/2, n-100)
			b.drain()
			if s := b.c.Stats(); s.FallbackCopies != c.fallbacks || s.Halts != c.fallbacks || s.Held != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestEnded: the completion word is believed if it names a descriptor that the device has.
func TestEnded(t *testing.T) {
	r := &ring{iova: 0x10000}
	for _, c := range []struct {
		word, done, posted, want uint64
		ok                       bool
	}{
		{0x10000, 0, 1, 1, true},
		{0x10000 | statusHalted, 0, 5, 1, true},
		{0x10000 + 64*4, 0, 5, 5, true},
		{0x10000 + 64*5, 0, 5, 0, false},  // not posted
		{0x10000 + 64*511, 0, 5, 0, true}, // the descriptor before the first
		{0x10000 + 64*511, 512, 520, 512, true},
		{0x10000 + 64*3, 512, 520, 516, true},
		{0x10000 + 64*8, 512, 520, 512, false},
		{0x10000 + 64*400, 512, 520, 512, true}, // older than what is known
		{0x10000 + 64*254, 1024, 1024 + inFlightMax, 1024 + inFlightMax, true},
		{0x10000 + 64*255, 1024, 1024 + inFlightMax, 1024, true}, // as old as can be
		{0x10000 + ringBytes, 0, 5, 0, false},
		{0xffc0, 0, 5, 0, false},
		{0, 0, 5, 0, false},
		{^uint64(0), 0, 5, 0, false},
	} {
		if n, ok := r.ended(c.word, c.done, c.posted); n != c.want || ok != c.ok {
			t.Errorf("word %#x, %d ended of %d: %d %v, want %d %v", c.word, c.done, c.posted, n, ok, c.want, c.ok)
		}
	}
}

// TestRefused: devices that cannot be driven are refused with the reason.
func TestRefused(t *testing.T) {
	for want, c := range map[string]struct {
		cfg ioatmodel.Config
		opt Options
	}{
		"version 0x20":              {ioatmodel.Config{Version: 0x20}, Options{}},
		"registers cannot be read":  {ioatmodel.Config{Version: 0xff}, Options{}},
		"2^11 bytes":                {ioatmodel.Config{XferCap: 11}, Options{}},
		"1 channels, and channel 1": {ioatmodel.Config{}, Options{Channel: 1}},
		"not those of an I/OAT":     {ioatmodel.Config{Class: 0x0200}, Options{}},
		"relaxed ordering":          {ioatmodel.Config{Relaxed: true}, Options{}},
		"-1 pending copies":         {ioatmodel.Config{}, Options{Pending: -1}},
		"first descriptor did not":  {ioatmodel.Config{Faults: []ioatmodel.Fault{{Kind: ioatmodel.LoseDoorbell, On: 1}}}, Options{}},
		"cannot allocate memory":    {ioatmodel.Config{LockMax: OwnBytes - 1}, Options{}},
	} {
		t.Run(want, func(t *testing.T) {
			m := ioatmodel.New(c.cfg)
			defer m.Close()
			c.opt.now = clock(m)
			_, err := Open(m, c.opt)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want ... %s ...", err, want)
			}
			if err := m.Unmap(nil, 0); err == nil {
				t.Error("the model unmaps what was not mapped")
			}
		})
	}
}

// TestUnmapped: the processor copies memory that could not be mapped, in the order of
// submission.
func TestUnmapped(t *testing.T) {
	m := ioatmodel.New(ioatmodel.Config{LockMax: OwnBytes + 64<<10})
	c, err := Open(m, Options{now: clock(m)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mapped, other := make([]byte, 64<<10), make([]byte, 64<<10)
	if err := c.Map(mapped); err != nil {
		t.Fatal(err)
	}
	if err := c.Map(other); err == nil || !strings.Contains(err.Error(), "cannot allocate memory") {
		t.Fatalf("%v, want an error for the limit", err)
	}
	for i := range 1 << 10 {
		mapped[i] = byte(i * 7)
	}
	// A chain through both kinds of memory.
	at := mapped[:1<<10]
	for i := 1; i < 60; i++ {
		to := other[i<<10:]
		if i%3 == 0 {
			to = mapped[i<<10:]
		}
		if !c.Submit(to, at, uint64(i)) {
			t.Fatal("the channel is full")
		}
		at = to[:1<<10]
	}
	last := uint64(0)
	for c.Pending() > 0 {
		c.Poll(func(token uint64, err error) {
			if err != nil || token != last+1 {
				t.Fatalf("end of %d: %v, behind that of %d", token, err, last)
			}
			last = token
		})
	}
	if !bytes.Equal(at, mapped[:1<<10]) {
		t.Error("the bytes have not arrived")
	}
	if s := c.Stats(); s.FallbackCopies != 59 || s.Copies != 59 || s.Halts != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUnmap: memory cannot be unmapped while a copy of it is pending, and is not accessed
// afterwards.
func TestUnmap(t *testing.T) {
	b := newBench(t, ioatmodel.Config{}, Options{})
	mem := make([]byte, 1<<20)
	if err := b.c.Unmap(mem); err == nil {
		t.Error("memory is unmapped that was not mapped")
	}
	if err := b.c.Map(mem); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Map(mem[100:200]); !errors.Is(err, errMapped) {
		t.Errorf("%v, want %v", err, errMapped)
	}
	if err := b.c.Map(nil); err == nil {
		t.Error("no memory is mapped")
	}
	b.c.Submit(mem, b.mem[:len(mem)], b.next)
	if err := b.c.Unmap(mem); err == nil {
		t.Error("memory is unmapped while a copy is pending")
	}
	b.next++
	b.drain()
	if err := b.c.Unmap(mem); err != nil {
		t.Fatal(err)
	}
	before := b.c.Stats().FallbackCopies
	b.c.Submit(mem, b.mem[:100], b.next)
	b.next++
	b.drain()
	if n := b.c.Stats().FallbackCopies - before; n != 1 {
		t.Errorf("the processor has made %d copies, want 1", n)
	}
}

// TestClose: after Close, the device does not write, and nothing is submitted.
func TestClose(t *testing.T) {
	b := newBench(t, ioatmodel.Config{Faults: []ioatmodel.Fault{{Kind: ioatmodel.Late, On: 3, Reads: 1000}}}, Options{})
	for i := range 20 {
		b.copy(arenaBytes/2+i*50000, i*40000, 40000)
	}
	if err := b.c.Close(); err != nil {
		t.Fatal(err)
	}
	clear(b.mem) // the race detector sees accesses of the model
	time.Sleep(3 * time.Millisecond)
	if !bytes.Equal(b.mem, make([]byte, arenaBytes)) {
		t.Error("the device has written after Close")
	}
	if b.c.Submit(b.mem, b.mem[1000:1100], 0) || b.c.Pending() != 0 {
		t.Error("a closed channel takes copies")
	}
	if err := b.c.Map(make([]byte, 1)); !errors.Is(err, errClosed) {
		t.Errorf("%v, want %v", err, errClosed)
	}
}

// TestBound: the channel takes as many copies as are configured, and does not allocate.
func TestBound(t *testing.T) {
	b := newBench(t, ioatmodel.Config{}, Options{Pending: 5})
	n := 0
	for b.c.Submit(b.mem[arenaBytes/2+n*100:], b.mem[n*100:n*100+100], uint64(n)) {
		n++
	}
	if n != 5 {
		t.Errorf("%d copies are pending, want 5", n)
	}
	for b.c.Pending() > 0 {
		b.c.Poll(func(uint64, error) {})
	}
	done := func(uint64, error) {}
	if a := testing.AllocsPerRun(1000, func() {
		b.c.Submit(b.mem[arenaBytes/2:], b.mem[:4096], 0)
		for b.c.Pending() > 0 {
			runtime.Gosched() // the measurement uses one processor for all goroutines
			b.c.Poll(done)
		}
	}); a != 0 {
		t.Errorf("a copy allocates %v times", a)
	}
}

// BenchmarkSubmit measures the cost of a copy of 64 KiB for the engine, with a device that is
// simulated on another thread.
func BenchmarkSubmit(b *testing.B) {
	m := ioatmodel.New(ioatmodel.Config{})
	c, err := Open(m, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	mem := make([]byte, 16<<20)
	if err := c.Map(mem); err != nil {
		b.Fatal(err)
	}
	const n = 64 << 10
	var spent time.Duration
	done := func(uint64, error) {}
	for i := range b.N {
		at := i % 64 * n
		begun := time.Now()
		ok := c.Submit(mem[8<<20+at:], mem[at:at+n], 0)
		spent += time.Since(begun)
		for !ok || c.Pending() > 32 {
			c.Poll(done)
			ok = true
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "submit-ns/op")
}

// TestNotLate: a completion word that is written between a poll and the look at the status is
// not late.
func TestNotLate(t *testing.T) {
	b := newBench(t, ioatmodel.Config{Faults: []ioatmodel.Fault{{Kind: ioatmodel.LoseDoorbell, On: 2}}}, Options{})
	at := time.Unix(0, 0)
	b.c.opt.now = func() time.Time {
		if !b.c.since.IsZero() { // the status is looked at next
			b.c.doorbell()
			for b.m.Counts().Copies == 0 || !b.m.Settled() {
				runtime.Gosched()
			}
		}
		at = at.Add(b.c.opt.Patience)
		return at
	}
	b.copy(arenaBytes/2, 0, 1000)
	b.drain()
	if s := b.c.Stats(); s.Late != 0 || s.Rerung != 0 || s.Copies != 1 {
		t.Errorf("%+v", s)
	}
}
