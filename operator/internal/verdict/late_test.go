package verdict

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// failedOnce is a story whose first attempt has failed, of so many seconds in all.
func failedOnce(t *testing.T, deadline int64) *story {
	s := begun(t)
	once := int32(2)
	s.job.Spec.RunPolicy.RestartLimit, s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &once, &deadline
	s.exit(0, 1, at(1))
	s.o.Now = at(1).Add(settle)
	s.next(Wait, v1alpha1.ConditionRestarting)
	return s
}

// TestDeadlineWhileRestarting: a job whose first attempt cannot be removed, since
// somebody's finalizer keeps its Job, ends when its time is over, and is looked at then.
func TestDeadlineWhileRestarting(t *testing.T) {
	s := failedOnce(t, 30)
	if p := s.next(Remove, v1alpha1.ConditionRestarting); p.Requeue != at(30).Sub(s.o.Now) {
		t.Errorf("the next look is in %v, and the time is over in %v", p.Requeue, at(30).Sub(s.o.Now))
	}
	s.o.Now = at(30)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("it failed for %s", f.Reason)
	}
}

// TestRestartAfterAClockThatWasAhead: a failure that was noted by a replica whose clock
// is an hour ahead does not hold the restart up for that hour.
func TestRestartAfterAClockThatWasAhead(t *testing.T) {
	s := failedOnce(t, 1<<30)
	c := meta.FindStatusCondition(s.job.Status.Conditions, v1alpha1.ConditionRestarting)
	c.LastTransitionTime.Time = s.o.Now.Add(time.Hour)
	s.o.Batch = nil
	s.next(Remove, v1alpha1.ConditionPending)
}
