package verdict

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// failedOnce returns a story whose first attempt has failed and whose deadline is the given
// number of seconds.
func failedOnce(t *testing.T, deadline int64) *story {
	s := begun(t)
	once := int32(2)
	s.job.Spec.RunPolicy.RestartLimit, s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &once, &deadline
	s.exit(0, 1, at(1))
	s.o.Now = at(1).Add(settle)
	s.next(Wait, v1alpha1.ConditionRestarting)
	return s
}

// TestDeadlineWhileRestarting: a job whose first attempt cannot be removed, because a
// finalizer keeps its Job, ends at its deadline, and is reconciled at that time.
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

// TestRestartAfterAClockThatWasAhead: a failure that was recorded by a replica whose
// clock is an hour ahead does not delay the restart by that hour.
func TestRestartAfterAClockThatWasAhead(t *testing.T) {
	s := failedOnce(t, 1<<30)
	c := meta.FindStatusCondition(s.job.Status.Conditions, v1alpha1.ConditionRestarting)
	c.LastTransitionTime.Time = s.o.Now.Add(time.Hour)
	s.o.Batch = nil
	s.next(Remove, v1alpha1.ConditionPending)
}

// TestDeadlinesOfAClockThatIsAhead: if the clock of the Job controller is an hour
// ahead, the deadlines are not longer.
func TestDeadlinesOfAClockThatIsAhead(t *testing.T) {
	for _, pending := range []bool{true, false} {
		s := newStory(t)
		s.next(Apply, v1alpha1.ConditionPending)
		limit := int64(60)
		s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &limit
		want := v1alpha1.ReasonDeadlineExceeded
		if pending {
			s.job.Spec.RunPolicy.PendingDeadlineSeconds, s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &limit, nil
			want = v1alpha1.ReasonPendingDeadlineExceeded
		}
		s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: s.job.Status.JobName, CreationTimestamp: metav1.NewTime(noon)}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: at(3600)}}}
		s.next(Apply, v1alpha1.ConditionPending)
		s.o.Now = at(30)
		s.next(Apply, v1alpha1.ConditionPending)
		if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonPodsMissing {
			t.Errorf("after 30 s without pods it is %s: %s", c.Reason, c.Message)
		}
		s.o.Now = at(60)
		s.next(Stop, v1alpha1.ConditionFailed)
		if f := s.job.Status.FirstFailure; f.Reason != want {
			t.Errorf("it failed for %s, want %s", f.Reason, want)
		}
	}
}

// TestFailureOfANodeWhoseClockIsAhead: if the clock of a node is an hour ahead, the
// failure of a rank is not attributed to the deletion of a pod after the failure was
// seen.
func TestFailureOfANodeWhoseClockIsAhead(t *testing.T) {
	for pod := range 2 {
		s := begun(t)
		s.exit(0, 3, at(3600), podlife.Failure{Rank: 1, Code: 3, Reason: podlife.RankExited, Text: "exit status 3", Time: at(3600)})
		s.o.Noticed = at(1)
		grace := int64(0)
		s.o.Pods[pod].DeletionTimestamp, s.o.Pods[pod].DeletionGracePeriodSeconds = &metav1.Time{Time: at(10)}, &grace
		s.o.Now = at(20)
		s.next(Stop, v1alpha1.ConditionFailed)
		if f := s.job.Status.FirstFailure; f.Reason != string(podlife.RankExited) || f.Rank == nil || *f.Rank != 1 {
			t.Errorf("pod %d was deleted later: %+v", pod, f)
		}
	}
}

// TestPendingDeadlineOfPodsBegunAnew: pods that a queue stopped and started again,
// between two reconciliations, have the whole deadline.
func TestPendingDeadlineOfPodsBegunAnew(t *testing.T) {
	s := newStory(t)
	s.next(Apply, v1alpha1.ConditionPending)
	limit := int64(60)
	s.job.Spec.RunPolicy.PendingDeadlineSeconds = &limit
	s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: s.job.Status.JobName, CreationTimestamp: metav1.NewTime(noon)}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: at(0)}}}
	s.o.Now = at(1)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Batch.Status.StartTime, s.o.Now = &metav1.Time{Time: at(3600)}, at(3601)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Now = at(3661)
	s.next(Stop, v1alpha1.ConditionFailed)
}
