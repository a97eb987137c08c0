package verdict

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestCauseThatSomebodyWrote: any client with the right to change Jobs can write the
// annotation with the cause. It counts only for a Job that was ended, and only within
// the bounds of the status.
func TestCauseThatSomebodyWrote(t *testing.T) {
	words := strings.Repeat("x", 1<<14)
	for text, want := range map[string]string{
		`{"reason":"RankExited","rank":1}`:                          "RankExited",
		`{"reason":"no word","rank":-7,"message":"\u0000"}`:         v1alpha1.ReasonUnknown,
		`{"reason":"RankExited","rank":524287}`:                     "RankExited",
		`{"reason":"RankExited","message":"` + words[:4000] + `"}`:  "RankExited",
		`{"reason":"RankExited","message":"` + words + words + `"}`: "",
		`{"rank":1}`: "",
		`no JSON`:    "",
	} {
		s := begun(t)
		s.o.Batch.Annotations = map[string]string{names.Group + "/cause": text}
		s.next(Apply, v1alpha1.ConditionRunning) // the Job was not ended
		long, one := int64(1000), int64(1)
		s.o.Batch.Spec.ActiveDeadlineSeconds = &long
		s.next(Apply, v1alpha1.ConditionRunning) // this does not end it either
		s.o.Batch.Spec.ActiveDeadlineSeconds = &one
		if want == "" {
			s.next(Apply, v1alpha1.ConditionRunning)
			continue
		}
		s.next(Stop, v1alpha1.ConditionFailed)
		f := s.job.Status.FirstFailure
		if f.Reason != want || len(f.Message) > messageMax || f.Rank != nil && (*f.Rank < 0 || *f.Rank >= s.job.Spec.Ranks) {
			t.Errorf("%.60s: %+v", text, f)
		}
	}
}
