package verdict

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestHookThatFailed: a container whose postStart hook failed was ended for that
// reason, whatever its launcher reported, and the message names no probe.
func TestHookThatFailed(t *testing.T) {
	terminated := podlife.Failure{Rank: 2, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated, Text: "was killed by SIGTERM", Time: at(10)}
	exited := podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)}
	for what, c := range map[string]struct {
		code  int32
		words []podlife.Failure
		asks  bool
	}{
		"the launcher was told to end":                {143, []podlife.Failure{terminated}, true},
		"it had not begun, and left no word":          {2, nil, true},
		"it had not begun, and was ended by a signal": {143, nil, true},
		"a rank has exited":                           {3, []podlife.Failure{exited}, false},
	} {
		s := begun(t)
		s.o.Pods[1].UID = "7"
		s.exit(1, c.code, at(10), c.words...)
		s.o.Now = at(14)
		o := s.o
		plan := Next(&o)
		p := Hooked(&o, &plan)
		if (p != nil) != c.asks {
			t.Errorf("%s: pod %v is asked about", what, p)
		}
		if p == nil {
			continue
		}
		s.o.Hook = Hook{Pod: p.Name, Text: "FailedPostStartHook: PostStartHook failed"}
		s.next(Stop, v1alpha1.ConditionFailed)
		f := s.job.Status.FirstFailure
		if f.Reason != string(podlife.Terminated) || !strings.Contains(f.Message, "lifecycle.postStart hook of container solver failed") ||
			!strings.HasSuffix(f.Message, s.o.Hook.Text) || strings.Contains(f.Message, "probe") {
			t.Errorf("%s: %+v", what, f)
		}
	}
}
