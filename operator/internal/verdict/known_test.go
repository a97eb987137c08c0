package verdict

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRuleOfNoFailure: the message of a job names restart rules that match no failure,
// and the likely intended names.
func TestRuleOfNoFailure(t *testing.T) {
	for reason, want := range map[string]string{
		"OOMKilled":  "; runPolicy.restartRules[1] names the reason OOMKilled, which no failure has: is OutOfMemory meant?",
		"rankExited": "; runPolicy.restartRules[1] names the reason rankExited, which no failure has: is RankExited meant?",
		"Pending":    "; runPolicy.restartRules[1] names the reason Pending, which no failure has",
		"PodLost":    "",
	} {
		s := newStory(t)
		s.job.Spec.RunPolicy.RestartRules = []v1alpha1.RestartRule{{Action: v1alpha1.ActionFail, Reasons: v1alpha1.Failures[:2]}, {Action: v1alpha1.ActionFail, Reasons: []string{"Drained", reason}}}
		s.next(Apply, v1alpha1.ConditionPending)
		s.o.Batch = begun(t).o.Batch
		s.next(Apply, v1alpha1.ConditionPending)
		if m := condition(s.job, v1alpha1.ConditionPending).Message; !strings.HasSuffix(m, "ranks run"+want) {
			t.Errorf("%q, want %q", m, want)
		}
		s.pods(0)
		s.next(Apply, v1alpha1.ConditionRunning)
		if m := condition(s.job, v1alpha1.ConditionRunning).Message; !strings.HasSuffix(m, "started"+want) {
			t.Errorf("%q, want %q", m, want)
		}
	}
}
