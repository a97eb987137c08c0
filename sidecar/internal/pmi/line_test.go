package pmi

import (
	"errors"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]map[string]string{
		"cmd=init pmi_version=1 pmi_subversion=1":             {"cmd": "init", "pmi_version": "1", "pmi_subversion": "1"},
		"cmd=put kvsname=k key=a value=b c=d  e":              {"cmd": "put", "kvsname": "k", "key": "a", "value": "b c=d  e"},
		"cmd=get  key=x":                                      {"cmd": "get", "key": "x"},
		"cmd=abort exitcode=3 message=it went x":              {"cmd": "abort", "exitcode": "3", "message": "it went x"},
		"cmd=abort exitcode=3 message=f(a=1, b=2, a=1) cmd=x": {"cmd": "abort", "exitcode": "3", "message": "f(a=1, b=2, a=1) cmd=x"},
		"cmd=put key=a value=":                                {"cmd": "put", "key": "a", "value": ""},
	} {
		r, err := parse(line)
		if err != nil || !maps.Equal(r.fields, want) || r.cmd != want["cmd"] {
			t.Errorf("%q is %v, %v; want %v", line, r.fields, err, want)
		}
	}
	for _, line := range []string{"", "init", "pmi_version=1", "cmd=", "cmd=a cmd=b", "cmd=put key=" + strings.Repeat("x", lineMax)} {
		if r, err := parse(line); !errors.Is(err, errLine) {
			t.Errorf("%q is %v, %v; want none", line, r, err)
		}
	}
}

func TestPairs(t *testing.T) {
	for what, c := range map[string]struct{ key, value string }{
		"no key":              {"", "v"},
		"long key":            {strings.Repeat("k", keyMax+1), "v"},
		"long value":          {"k", strings.Repeat("v", valueMax+1)},
		"blank in a key":      {"a b", "v"},
		"sign in a key":       {"a=b", "v"},
		"control in a key":    {"a\x01", "v"},
		"newline in a value":  {"k", "a\nb"},
		"zero in a value":     {"k", "a\x00b"},
		"delete in a key":     {"a\x7f", ""},
		"newline in a key":    {"a\nb", ""},
		"tab in a key's name": {"\ta", ""},
	} {
		if err := checkPair(c.key, c.value); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := checkPair(strings.Repeat("k", keyMax), strings.Repeat("v", valueMax)); err != nil {
		t.Error(err)
	}
}

func TestMapping(t *testing.T) {
	for want, layout := range map[string][]int{
		"(vector,(0,1,1))":                 {1},
		"(vector,(0,2,3))":                 {3, 3},
		"(vector,(0,2,3),(2,1,2))":         {3, 3, 2},
		"(vector,(0,1,3),(1,1,2),(2,1,3))": {3, 2, 3},
	} {
		if got := mapping(layout); got != want {
			t.Errorf("%v is %s, want %s", layout, got, want)
		}
	}
}

func TestSpace(t *testing.T) {
	s := newSpace("(vector,(0,1,2))", 1<<30)
	if v, ok := s.get(mappingKey); !ok || v != "(vector,(0,1,2))" {
		t.Errorf("the mapping is %q", v)
	}
	if err := s.put(0, mappingKey, "x"); err == nil {
		t.Error("a rank wrote the mapping")
	}
	if err := s.put(0, "a", "1 2"); err != nil {
		t.Fatal(err)
	}
	other := newSpace("", 1<<30)
	if err := other.admit(s.export()); err != nil {
		t.Fatal(err)
	}
	if v, ok := other.get("a"); !ok || v != "1 2" {
		t.Errorf("the other pod has %q", v)
	}
	big := strings.Repeat("v", valueMax)
	n := 0
	for ; s.put(1, "k"+strings.Repeat("x", n%20)+string(rune('a'+n%26)), big) == nil; n++ {
		if n > 1000 {
			t.Fatal("a rank may put without end")
		}
	}
	if err := s.put(2, "fine", "v"); err != nil {
		t.Errorf("another rank: %v", err)
	}
	s.passed()
	if err := s.put(1, "again", "v"); err != nil {
		t.Errorf("after the barrier: %v", err)
	}
}

// TestSmallPairs checks that all pairs that a rank may put between two barriers fit into
// its share of a round, however small the pairs are.
func TestSmallPairs(t *testing.T) {
	s, n := newSpace("", 1<<30), 0
	for s.put(0, strconv.FormatInt(int64(n), 36), "") == nil {
		n++
	}
	if got := len(s.export()); n == 0 || got > rankBytes {
		t.Errorf("%d pairs of a rank are %d bytes, at most %d", n, got, rankBytes)
	}
}

// TestSpaceIsBounded checks that the ranks of a pod fill their share of each sidecar and no
// more, however small and many the pairs are and however many barriers separate them, and
// that the next program has the share again.
func TestSpaceIsBounded(t *testing.T) {
	const ranks, perPod = 256, 64
	all := newSpace("", 0)
	before := alive()
	for pod := range ranks / perPod {
		s := newSpace("", spaceShare(perPod, ranks))
		fill := func() (n int) {
			for more := true; more; {
				more = false
				for rank := range perPod {
					for s.put(rank, strconv.FormatInt(int64(pod)<<32|int64(n), 36), "") == nil {
						n, more = n+1, true
					}
				}
				if err := all.admit(s.export()); err != nil {
					t.Fatal(err)
				}
				s.passed()
			}
			return n
		}
		first := fill()
		if first == 0 {
			t.Fatal("nothing may be put")
		}
		if pod > 0 {
			continue
		}
		s.renew()
		all.renew()
		if again := fill(); again != first {
			t.Errorf("a program may put %d pairs, the next one %d", first, again)
		}
	}
	if used := alive() - before; used > memory.LaunchBytes(ranks)*5/4 {
		t.Errorf("%d pairs take %d bytes, want at most some %d", len(all.all), used, memory.LaunchBytes(ranks))
	}
	runtime.KeepAlive(all)
}

// FuzzParse checks that a line is refused, or has a pair that may be stored and that passes
// unchanged to another pod's space.
func FuzzParse(f *testing.F) {
	f.Add("cmd=put kvsname=k key=a value=b c=d")
	f.Add("cmd=barrier_in")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parse(line)
		if err != nil {
			return
		}
		s, other := newSpace("", 1<<30), newSpace("", 1<<30)
		if s.put(0, r.fields["key"], r.fields["value"]) != nil {
			return
		}
		if err := other.admit(s.export()); err != nil {
			t.Fatal(err)
		}
		if v, ok := other.get(r.fields["key"]); !ok || v != r.fields["value"] {
			t.Fatalf("%q became %q", r.fields["value"], v)
		}
	})
}

// FuzzAdmit checks that the data of another sidecar is refused, or contains only pairs that
// could have been put.
func FuzzAdmit(f *testing.F) {
	f.Add([]byte("\x01\x00\x02\x00\x00\x00kvv"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSpace("(vector,(0,1,1))", 1<<30)
		if s.admit(b) != nil {
			return
		}
		for k, v := range s.all {
			if err := checkPair(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if s.all[mappingKey] != "(vector,(0,1,1))" {
			t.Fatal("the mapping was overwritten")
		}
	})
}

// FuzzPieces checks that data from the parent is refused, or has one piece for each pod.
func FuzzPieces(f *testing.F) {
	f.Add(appendPiece(appendPiece(nil, 0, []byte("a")), 1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := pieces(2, b)
		if err != nil {
			return
		}
		if n := len(all[0]) + len(all[1]) + 2*pieceHead; len(all) != 2 || n != len(b) {
			t.Fatalf("%d bytes became %d", len(b), n)
		}
	})
}
