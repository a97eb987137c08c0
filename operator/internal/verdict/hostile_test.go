package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// An application can write the launcher's termination message itself. Whatever the
// text, the API server accepts the status.
func TestForgedMessage(t *testing.T) {
	for what, f := range map[string]podlife.Failure{
		"a reason that is none for a condition": {Rank: 2, Code: 1, Reason: "9lives", Time: at(10)},
		"a year of five digits":                 {Rank: 2, Code: 1, Reason: podlife.RankExited, Time: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600))},
		"the first year":                        {Rank: 2, Code: 1, Reason: podlife.RankExited, Time: time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)},
		"all of the text":                       {Rank: 2, Code: 1, Reason: podlife.RankExited, Text: strings.Repeat("ü", 512), Time: at(10)},
		"the largest code":                      {Rank: 2, Code: math.MaxInt32, Reason: podlife.RankExited, Time: at(10)},
	} {
		t.Run(what, func(t *testing.T) {
			s := begun(t)
			s.job.CreationTimestamp = metav1.NewTime(noon)
			s.exit(1, 3, at(10), f)
			s.o.Now = at(20)
			s.next(Stop, v1alpha1.ConditionFailed)
			conforms(t, &s.job.Status)
			if at := s.job.Status.FirstFailure.Time; at.Before(&s.job.CreationTimestamp) || at.After(s.o.Now) {
				t.Errorf("it failed at %v, before it was made or after now", at)
			}
		})
	}
}

// The texts of the cluster about a pod have no bounds.
func TestHugeMessages(t *testing.T) {
	huge := strings.Repeat("é", 20000)
	s := begun(t)
	grace := int64(0)
	s.o.Pods[0].DeletionTimestamp, s.o.Pods[0].DeletionGracePeriodSeconds = &metav1.Time{Time: at(10)}, &grace
	s.o.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Eviction", Message: huge}}
	s.o.Now = at(20)
	s.next(Wait, v1alpha1.ConditionRestarting)
	conforms(t, &s.job.Status)

	s = begun(t)
	s.o.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: huge}}}
	s.next(Apply, v1alpha1.ConditionPending)
	conforms(t, &s.job.Status)
}

// Transports are a set of short words, whatever the number of reports.
func TestForgedTransports(t *testing.T) {
	s := begun(t)
	s.o.Transports = []string{"tcp", "tcp", "", strings.Repeat("x", 64), "no word", "a", "b", "c", "d", "e", "f", "g", "h", "i"}
	s.next(Apply, v1alpha1.ConditionRunning)
	conforms(t, &s.job.Status)
	if len(s.job.Status.Transports) != 8 || !slices.Contains(s.job.Status.Transports, "a") {
		t.Errorf("transports %v", s.job.Status.Transports)
	}
}

// The kubelet reports no time for a container whose end it did not see. The end is a
// failure nevertheless.
func TestEndWithoutATime(t *testing.T) {
	s := begun(t)
	s.exit(1, 137, time.Time{})
	s.o.Pods[1].Status.ContainerStatuses[0].State.Terminated.Reason = "ContainerStatusUnknown"
	s.o.Noticed, s.o.Now = at(1), at(20)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Pod != "cg-0-1-x" {
		t.Fatalf("%+v", f)
	}
}

// A pod that failed without a report of its containers does not wait for pods that may
// never start.
func TestFailedPodBesideOneThatWaits(t *testing.T) {
	s := begun(t)
	s.o.Pods[1].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Shutdown", Message: "the node goes down"}
	s.o.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending}
	s.o.Noticed, s.o.Now = at(1), at(60)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Pod != "cg-0-1-x" || !strings.Contains(f.Message, "the node goes down") {
		t.Fatalf("%+v", f)
	}
}

// The Job controller replaces a failed pod. The first pod is the cause, whatever the
// order in which they are listed.
func TestTwoPodsOfANumber(t *testing.T) {
	for _, turn := range []bool{false, true} {
		s := begun(t)
		s.exit(1, 3, at(10), podlife.Failure{Rank: 3, Code: 3, Reason: podlife.RankExited, Time: at(10)})
		again := s.o.Pods[0].DeepCopy()
		again.Name, again.Labels[batchv1.JobCompletionIndexAnnotation], again.CreationTimestamp = "cg-0-1-y", "1", metav1.NewTime(at(11))
		again.Spec.NodeName = "node7"
		s.o.Pods = append(s.o.Pods, again)
		if turn {
			slices.Reverse(s.o.Pods)
		}
		s.o.Now = at(20)
		s.next(Stop, v1alpha1.ConditionFailed)
		s.failed(3, 3, "RankExited", "cg-0-1-x", "node1")
	}
}

// The same pods in another order give the same status. Otherwise, it would be written
// again and again.
func TestOrderDoesNotMatter(t *testing.T) {
	s := begun(t)
	for i, p := range s.o.Pods {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: fmt.Sprint("no room for ", i)}}}
	}
	s.next(Apply, v1alpha1.ConditionPending)
	before := condition(s.job, v1alpha1.ConditionPending).Message
	slices.Reverse(s.o.Pods)
	s.next(Apply, v1alpha1.ConditionPending)
	if after := condition(s.job, v1alpha1.ConditionPending).Message; after != before {
		t.Errorf("%q, and then %q", before, after)
	}
}

// The status of a finished job stays unchanged when its pods are removed.
func TestPodsRemovedAfterTheEnd(t *testing.T) {
	s := begun(t)
	s.exit(0, 0, at(29))
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.batch(batchv1.JobComplete, "") // before the end of the other pod is reported
	s.next(Stop, v1alpha1.ConditionComplete)
	s.o.Pods = nil
	s.next(Stop, v1alpha1.ConditionComplete)
	if r := s.job.Status.Ranks; *r.Succeeded != 4 || *r.Pending+*r.Running+*r.Failed != 0 {
		t.Errorf("%d of 4 ranks succeeded", *r.Succeeded)
	}
	s = begun(t)
	s.exit(0, 0, at(5))
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.exit(1, 3, at(10))
	s.o.Now = at(20)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.o.Pods = nil
	s.next(Stop, v1alpha1.ConditionFailed)
	if r := s.job.Status.Ranks; *r.Succeeded != 2 || *r.Failed != 2 || *r.Pending+*r.Running != 0 {
		t.Errorf("%d succeeded, %d failed, %d pending, %d running, want 2 and 2", *r.Succeeded, *r.Failed, *r.Pending, *r.Running)
	}
}

// The longest possible deadline is in the future.
func TestLongDeadline(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(math.MaxInt64))
	s.o.Now = at(20)
	s.next(Apply, v1alpha1.ConditionRunning)
}

// Pods with a job's labels that were not made by its Job do not count.
func TestForeignPods(t *testing.T) {
	b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cg-0", UID: "1"}}
	yes := true
	by := func(kind, name, uid string) *corev1.Pod {
		p := new(corev1.Pod)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes}}
		return p
	}
	for _, c := range []struct {
		p    *corev1.Pod
		b    *batchv1.Job
		want bool
	}{
		{by("Job", "cg-0", "1"), b, true},
		{by("Job", "cg-0", "1"), nil, true},
		{by("Job", "cg-0", "2"), b, false},
		{by("Job", "other", "1"), nil, false},
		{by("ReplicaSet", "cg-0", "2"), nil, false},
		{new(corev1.Pod), b, false},
		{new(corev1.Pod), nil, false},
	} {
		if got := Made(c.p, "cg-0", c.b); got != c.want {
			t.Errorf("pod of %v, Job %v: %v", c.p.OwnerReferences, c.b, got)
		}
	}
}

// A job whose obstacle persists is tried less often.
func TestHold(t *testing.T) {
	s := newStory(t)
	for _, c := range []struct{ after, want time.Duration }{{0, holdMin}, {time.Second, holdMin}, {time.Minute, time.Minute}, {time.Hour, holdMax}} {
		s.o.Now = noon.Add(c.after)
		o := s.o
		p := Next(&o)
		Hold(&o, &p, v1alpha1.ReasonInvalid, strings.Repeat("no ", 10000))
		s.job.Status = p.Status
		conforms(t, &p.Status)
		if p.Requeue != c.want || p.Status.JobName != "" {
			t.Errorf("after %v: again in %v, want %v; job %q", c.after, p.Requeue, c.want, p.Status.JobName)
		}
	}
	// The owner of the obstacle may keep it.
	s = newStory(t)
	for _, c := range []struct{ after, want time.Duration }{{0, holdPassing}, {16 * time.Second, holdPassing}, {time.Minute, time.Minute / 8}, {time.Hour, time.Hour / 8}, {24 * time.Hour, holdMax}} {
		s.o.Now = noon.Add(c.after)
		o := s.o
		p := Next(&o)
		Hold(&o, &p, v1alpha1.ReasonNameConflict, "it is being removed")
		Soon(&o, &p)
		if s.job.Status = p.Status; p.Requeue != c.want {
			t.Errorf("an obstacle that passes: after %v again in %v, want %v", c.after, p.Requeue, c.want)
		}
	}
	s = begun(t)
	o := s.o
	p := Next(&o)
	Hold(&o, &p, v1alpha1.ReasonInvalid, "a change is refused")
	s.job.Status = p.Status
	s.next(Apply, v1alpha1.ConditionRunning)
}
