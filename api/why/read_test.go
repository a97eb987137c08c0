package why

import (
	"encoding/json"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullest returns a rank with the maximum that a sidecar may report.
func fullest(rank int) Rank {
	name := strings.Repeat("x", nameMax)
	r := Rank{Rank: rank, State: name, Stopped: math.MaxInt32, Frozen: true, Quiet: math.Pi * 1e6, Free: true, More: math.MaxInt32, Count: math.MaxInt32}
	for range waitsMax {
		w := Wait{
			Kind: name, Name: name, Order: name, Seconds: math.Pi * 1e6, Peer: math.MaxInt32, Context: math.MaxUint32, Tag: math.MaxUint64, Ignore: math.MaxUint64,
			Bytes: math.MaxUint64, Moving: true, Round: math.MaxInt32, Rounds: math.MaxInt32, Number: math.MaxUint32, Lead: math.MaxInt32, Group: math.MaxInt32,
		}
		for range forMax {
			w.For = append(w.For, math.MaxInt32)
		}
		l := Lock{Window: math.MaxUint32, More: math.MaxInt32}
		for range waitsMax {
			l.Holders = append(l.Holders, Holder{math.MaxInt32, math.Pi * 1e6})
		}
		r.Waits, r.Locks = append(r.Waits, w), append(r.Locks, l)
		r.Here = append(r.Here, Message{math.MaxInt32, math.MaxUint32, math.MaxUint64, math.MaxUint64, "", name})
	}
	for range pastMax {
		r.Past = append(r.Past, Begun{Context: math.MaxUint32, Lead: math.MaxInt32, Number: math.MaxUint32, Name: name, Order: name, Count: math.MaxUint32})
	}
	return r
}

// TestRead: the report of a sidecar is read unchanged, even if it has the maximum size.
func TestRead(t *testing.T) {
	for _, n := range []int{0, 1, 300} {
		var said []Rank
		for i := range n {
			said = append(said, fullest(i))
		}
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(strings.NewReader(string(text)+"\n"), n)
		if diff := cmp.Diff(said, got, cmp.AllowUnexported(Wait{})); err != nil || diff != "" {
			t.Errorf("%d ranks: %v (-said +read):\n%s", n, err, diff)
		}
	}
}

// TestReadRefuses: an input that is not a list of the pod's ranks is an error.
func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "an object": `{"rank":0}`, "a page": "<html>", "half": `[{"rank":0}`, "a string": `["rank"]`,
		"more ranks": `[{"rank":0},{"rank":1},{"rank":2}]`, "a long rank": `[{"rank":0,"state":"` + strings.Repeat("x", rankMax) + `"}]`,
	} {
		got, err := Read(strings.NewReader(text), 2)
		if err == nil || name == "a long rank" && !strings.Contains(err.Error(), "a rank of more than 16384 bytes") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// costs returns how many bytes a function allocates, and how many of them its result keeps.
func costs(what func() any) (all, kept uint64) {
	var before, after, later runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	keep := what()
	runtime.ReadMemStats(&after)
	runtime.GC()
	runtime.ReadMemStats(&later)
	runtime.KeepAlive(keep)
	return after.TotalAlloc - before.TotalAlloc, max(later.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
}

// TestReadOfStrangers: an untrusted program that answers in place of a sidecar cannot
// fill the reader's memory, neither by lists whose elements take more memory than their
// text nor by long words.
func TestReadOfStrangers(t *testing.T) {
	const ranks, length = 128, 1 << 20
	long := func(text string) string { return strings.Repeat(text, length/len(text)) }
	many := func(rank string) string { return `[` + strings.Repeat(rank+",", ranks-1) + `{}]` }
	for name, c := range map[string]struct {
		text  string
		ranks uint64 // number of ranks that are read
	}{
		"ranks":      {`[{}` + long(",{}") + `]`, ranks},
		"waits":      {`[{"waits":[{}` + long(",{}") + `]}]`, 1},
		"no waits":   {`[{"waits":[1` + long(",1") + `]}]`, 1},
		"messages":   {`[{"here":[{}` + long(",{}") + `]}]`, 1},
		"a word":     {`[{"state":"` + long("x") + `"}]`, 1},
		"many lists": {many(`{"waits":[{}` + strings.Repeat(",{}", 5000) + `]}`), ranks},
		"long words": {many(`{"state":"` + strings.Repeat("x", 15<<10) + `"}`), ranks},
	} {
		all, kept := costs(func() any {
			got, _ := Read(strings.NewReader(c.text), ranks) // most cases return an error
			return got
		})
		if all > c.ranks*8<<20 {
			t.Errorf("%s: reading allocates %d MiB", name, all>>20)
		}
		if kept > 512<<10 {
			t.Errorf("%s: %d KiB are kept", name, kept>>10)
		}
	}
}
