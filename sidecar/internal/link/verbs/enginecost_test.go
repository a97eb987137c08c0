//go:build rdma && rdmaguest

package verbs

import (
	"encoding/binary"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// costRounds is how many messages of each kind are timed, after costWarm untimed ones.
const costRounds, costWarm = 400, 100

var messages = flag.Int("verbs.messages", 2000, "TestEngineCost: messages of which the mean is printed")

// timed returns the median time of do.
func timed(do func(i uint64)) float64 {
	times := make([]time.Duration, 0, costRounds)
	for i := range uint64(costRounds + costWarm) {
		begun := time.Now()
		do(i)
		if took := time.Since(begun); i >= costWarm {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds())
}

// pairOfRigs returns two connected pods of one rank each.
func pairOfRigs(t *testing.T, s setting) [2]*rig {
	t.Helper()
	two := [2]*rig{newRig(t, 0, []int32{0, 1}, s), newRig(t, 1, []int32{0, 1}, s)}
	x, y := ends(t, two[0].link, two[1].link)
	fds := sockets(t)
	two[0].joined(t, 1, fds[0], x)
	two[1].joined(t, 0, fds[1], y)
	for range 10 { // greetings, and offers of rings
		two[0].engine.Turn()
		two[1].engine.Turn()
	}
	for i, r := range two {
		r.ranks[0].recv(uint32(1 - i))
		r.engine.Turn()
	}
	return two
}

// one sends 8 bytes one way. The receive that the next message finds is posted
// with the message, as perftest's buffer is there.
func one(two *[2]*rig, from int, value uint64) {
	a, b := two[from], two[1-from]
	if value > 1 {
		a.ranks[0].recv(uint32(1 - from))
	}
	a.ranks[0].send(uint32(1-from), value)
	a.engine.Turn()
	for b.engine.Turn(); !b.ranks[0].took(); b.engine.Turn() {
		a.engine.Turn()
	}
	if b.ranks[0].received != value {
		b.ranks[0].t.Fatalf("message %d brought %d", value, b.ranks[0].received)
	}
}

// TestEngineCost prints the cost of 8 bytes one way from the ring of one rank to that of
// another, by two engines over the device, whose turns this thread executes, and the
// parts of that cost: the same requests without engine and link (as ib_write_lat makes
// them, which polls memory), the link alone, and an engine alone. On a machine whose
// clock counts instructions the result is their number.
func TestEngineCost(t *testing.T) {
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource") // only for the log
	t.Logf("clock source %s; reading it takes %.0f", strings.TrimSpace(string(source)), timed(func(uint64) { _ = time.Now() }))
	bare := bareCost(t)
	linkCost(t)
	localCost(t)
	for _, s := range settings {
		two := pairOfRigs(t, s)
		value := uint64(0)
		way := timed(func(uint64) {
			value++
			one(&two, 0, value)
			value++
			one(&two, 1, value)
		}) / 2
		before := [2]Stats{two[0].link.Stats(), two[1].link.Stats()}
		n := *messages
		begun := time.Now()
		for range n / 2 {
			value++
			one(&two, 0, value)
			value++
			one(&two, 1, value)
		}
		mean := float64(time.Since(begun).Nanoseconds()) / float64(n)
		x, y := two[0].link.Stats(), two[1].link.Stats()
		per := func(f func(*Stats) uint64) float64 {
			return float64(f(&x)+f(&y)-f(&before[0])-f(&before[1])) / float64(n)
		}
		if got := two[0].engine.Counters().RingFrames; got < uint64(n)/2 {
			t.Errorf("engine, %s: %d frames by the eager channel, want all", s, got)
		}
		t.Logf("engine, %-20s %6.0f one way, %.2f times the bare write; mean of %d: %.0f, %.2f times", s, way, way/bare, n, mean, mean/bare)
		t.Logf("engine, %-20s a message: %.3f posts, %.3f writes, %.3f receives, %.3f completions, %.3f polls; a turn that finds nothing: %.0f",
			s, per(func(s *Stats) uint64 { return s.Calls }), per(func(s *Stats) uint64 { return s.Writes }), per(func(s *Stats) uint64 { return s.Receives }),
			per(func(s *Stats) uint64 { return s.Completions }), per(func(s *Stats) uint64 { return s.Polls }), timed(func(uint64) { two[0].engine.Turn() }))
		for _, r := range two {
			r.close(t)
		}
	}
}

// localCost measures an engine without a device, to which both ranks belong.
func localCost(t *testing.T) {
	r := newRig(t, 0, []int32{0, 0}, settings[0])
	defer r.close(t)
	value := uint64(0)
	way := timed(func(uint64) {
		for i := range uint32(2) {
			value++
			r.ranks[1-i].recv(i)
			r.ranks[i].send(1-i, value)
			for r.engine.Turn(); !r.ranks[1-i].took(); r.engine.Turn() {
			}
		}
	}) / 2
	t.Logf("engine without a device: %.0f one way", way)
}

// bareCost times the requests of one message without the link and the engine, and returns
// the cost of one as ib_write_lat makes it: a write, a poll of memory, a completion.
func bareCost(t *testing.T) (write float64) {
	t.Helper()
	a, b := newTestLink(t, "", nil, openTest(t)), newTestLink(t, "", nil, openTest(t))
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	x, y := ends(t, a, b)
	mem := words(4096)
	comps := make([]completion, pollBatch)
	var at [2]region
	for i, l := range []*Link{a, b} {
		var err error
		if at[i], err = l.nic.register(mem[2048*i:2048*(i+1)], 0, true); err != nil {
			t.Fatal(err)
		}
	}
	two := [2]*conn{x.c, y.c}
	batch := make([]request, 1)
	way := func(from int, value uint64, n int) {
		here := two[from]
		to := mem[2048*(1-from):]
		source := mem[2048*from+1024:]
		binary.LittleEndian.PutUint64(source[n-8:], value)
		batch[0] = request{
			id: idOf(here.tag, 0), op: opWrite, flags: flagSignal | flagInline, addr: addressOf(source), lkey: at[from].lkey, length: uint32(n),
			remote: at[1-from].addr, rkey: at[1-from].rkey,
		}
		if err := here.pair.post(batch); err != nil {
			t.Fatal(err)
		}
		for binary.LittleEndian.Uint64(to[n-8:]) != value {
		}
		for {
			k, err := here.l.nic.poll(comps)
			if err != nil {
				t.Fatal(err)
			}
			if k > 0 {
				break
			}
		}
	}
	// A message of 8 bytes has 64, with its header and the slot's flag. From 80 on
	// Soft-RoCE computes the checksum with the processor's vector unit.
	for _, n := range []int{8, 64, 72, 80, 88} {
		value := uint64(n)
		took := timed(func(uint64) {
			value++
			way(0, value, n)
			value++
			way(1, value, n)
		}) / 2
		t.Logf("bare: %.0f a write of %d bytes", took, n)
		if write == 0 {
			write = took
		}
	}
	t.Logf("bare: %.0f a poll that finds nothing", timed(func(uint64) {
		if _, err := a.nic.poll(comps); err != nil {
			t.Fatal(err)
		}
	}))
	for _, e := range []*Endpoint{x, y} {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, l := range []*Link{a, b} {
		if err := l.nic.deregister(at[i]); err != nil {
			t.Error(err)
		}
	}
	return write
}

// linkCost measures a notified write from link to link.
func linkCost(t *testing.T) {
	f := make(plain, 1<<16)
	a, b := newTestLink(t, "", nil, openTest(t)), newTestLink(t, "", nil, openTest(t))
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	a.SetMemory(f)
	b.SetMemory(f)
	join(t, a, b)
	sinks := [2]*tally{{}, {}}
	links := [2]*Link{a, b}
	var keys [2]link.Key
	for i, l := range links {
		var err error
		if keys[i], err = l.Register(link.Ref{Region: 1, Off: uint64(8192 * i), Len: 4096}); err != nil {
			t.Fatal(err)
		}
	}
	way := func(from int, n uint64) {
		here, there := links[from], links[1-from]
		if err := here.Write(0, n, link.Ref{Region: 1, Off: 32768, Len: 88}, keys[1-from], 1+n%16); err != nil {
			t.Fatal(err)
		}
		here.Commit()
		here.Poll(sinks[from])
		for want := sinks[1-from].written + 1; sinks[1-from].written < want; {
			there.Poll(sinks[1-from])
		}
	}
	t.Logf("link: %.0f a notified write of 88 bytes", timed(func(i uint64) { way(0, i); way(1, i) })/2)
	t.Logf("link: %.0f a poll that finds nothing", timed(func(uint64) { a.Poll(sinks[0]) }))
}
