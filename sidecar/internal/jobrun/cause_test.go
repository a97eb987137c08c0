package jobrun

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// TestCause: what launchers and sidecars saw makes one story.
func TestCause(t *testing.T) {
	doc := &bootstrap.Document{Ranks: 4, Pods: []bootstrap.Pod{{Ranks: 2}, {FirstRank: 2, Ranks: 2}}}
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	type exit struct {
		rank uint32
		code int
		at   int
	}
	for what, c := range map[string]struct {
		exits []exit
		seen  obs.Failure
		text  string
		code  int
	}{
		"victims exit first": {
			[]exit{{0, 1, 5}, {2, 1, 6}},
			obs.Failure{Rank: 3, Code: 1, Reason: "expelled: it lied", Time: at(4)},
			"rank 3 (pod 1) failed: expelled: it lied", 1,
		},
		"the culprit exits too": {
			[]exit{{0, 1, 5}, {3, 77, 6}},
			obs.Failure{Rank: 3, Code: 1, Reason: "expelled: it lied", Time: at(4)},
			"exit of 3: expelled: it lied", 77,
		},
		"abort with a code": {
			[]exit{{3, 1, 5}, {0, 1, 6}},
			obs.Failure{Rank: 3, Code: 42, Reason: "called abort: no sense", Time: at(4)},
			"exit of 3: called abort: no sense", 42,
		},
		"a process that ended": {
			[]exit{{0, 1, 5}, {3, 137, 6}},
			obs.Failure{Rank: 3, Code: 1, Reason: vanished + " so", Time: at(4)},
			"exit of 3", 137,
		},
		"a consequence": {
			[]exit{{0, 9, 3}},
			obs.Failure{Rank: 3, Code: 1, Reason: vanished, Time: at(4)},
			"exit of 0", 9,
		},
	} {
		j := &Job{layout: &layout{doc: doc}, failed: make(chan struct{}), causes: map[uint32]*Failure{}}
		for _, e := range c.exits {
			f := &Failure{Text: "exit of " + string(rune('0'+e.rank)), Code: e.code}
			j.causes[e.rank] = f
			j.fail(f, at(e.at))
		}
		j.blame(&c.seen)
		if j.first.Text != c.text || j.first.Code != c.code {
			t.Errorf("%s: %q with code %d, want %q with code %d", what, j.first.Text, j.first.Code, c.text, c.code)
		}
	}
}
