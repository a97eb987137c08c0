package verdict

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A job that succeeds, from the first reconciliation to its deletion.
func TestSuccess(t *testing.T) {
	s := begun(t)
	if r := s.job.Status.Ranks; *r.Running != 4 || s.job.Status.StartTime == nil {
		t.Fatalf("running %d, start %v", *r.Running, s.job.Status.StartTime)
	}
	s.o.Now = at(30)
	s.exit(0, 0, at(29))
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.next(Apply, v1alpha1.ConditionRunning)
	s.exit(1, 0, at(30))
	s.o.Pods[1].Status.Phase = corev1.PodSucceeded
	s.batch(batchv1.JobComplete, "")
	ttl := int32(60)
	s.job.Spec.RunPolicy.TTLSecondsAfterFinished = &ttl
	s.next(Stop, v1alpha1.ConditionComplete)
	if *s.job.Status.Ranks.Succeeded != 4 || s.job.Status.CompletionTime == nil || s.job.Status.FirstFailure != nil {
		t.Fatalf("status %+v", s.job.Status)
	}
	s.o.Now = at(50)
	if p := s.next(Stop, v1alpha1.ConditionComplete); p.Requeue != 40*time.Second {
		t.Fatalf("looks again after %v, want the 40 s that are left to live", p.Requeue)
	}
	s.o.Now = at(90)
	s.next(Delete, v1alpha1.ConditionComplete)
}

// Rank 3 exits with 3. The others fail because of it, and their ends are reported
// first.
func TestFirstFailureIsTheCause(t *testing.T) {
	s := begun(t)
	agreed := &podlife.Message{Failures: []podlife.Failure{{Rank: 3, Code: 1, Reason: podlife.RankVanished, Text: podlife.TextVanished, Time: at(10.01)}}}
	s.o.Now = at(11)
	s.exit(0, 1, at(10), podlife.Failure{Rank: 0, Code: 1, Reason: podlife.RankExited, Text: "exited with code 1", Time: at(10.2)})
	if p := s.next(Wait, v1alpha1.ConditionRunning); p.Requeue == 0 || p.Status.FirstFailure != nil {
		t.Fatalf("looks again after %v; first failure %+v, told before its cause may be known", p.Requeue, p.Status.FirstFailure)
	}
	s.sidecar(0, 0, at(11), agreed)
	s.exit(1, 3, at(10), podlife.Failure{Rank: 3, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)})
	s.sidecar(1, 0, at(11), agreed)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(3, 3, "RankExited", "cg-0-1-x", "node1")
	if c := condition(s.job, v1alpha1.ConditionFailed); !strings.Contains(c.Message, "rank 3") || !strings.Contains(c.Message, "node1") {
		t.Fatalf("message %q", c.Message)
	}
}

// Restarts: the status has the cause before any object is removed; the next attempt
// starts when the old pods are gone; at the limit, the job ends.
func TestRestartLimit(t *testing.T) {
	s := begun(t)
	limit := int32(1)
	s.job.Spec.RunPolicy.RestartLimit = &limit
	die := func(when float64) {
		s.exit(1, 3, at(when), podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Time: at(when)})
		s.o.Now = at(when + 5)
	}
	die(10) // a restart removes the pods, and their output
	s.next(Wait, v1alpha1.ConditionRestarting)
	if f := s.job.Status.FirstFailure; f == nil || *f.Attempt != 0 {
		t.Fatalf("first failure %+v", f)
	}
	s.next(Remove, v1alpha1.ConditionRestarting)
	s.o.Batch = nil
	s.next(Wait, v1alpha1.ConditionRestarting) // the pods still exist
	s.o.Pods, s.o.Now = nil, s.o.Now.Add(backoffMin)
	s.next(Remove, v1alpha1.ConditionPending) // the objects that are left of the attempt
	if n := AttemptOf(s.job); n != 1 || s.job.Status.JobName != "" {
		t.Fatalf("attempt %d, job %q", n, s.job.Status.JobName)
	}
	s.next(Apply, v1alpha1.ConditionPending)
	if s.job.Status.JobName != "cg-1" {
		t.Fatalf("job %q", s.job.Status.JobName)
	}
	s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cg-1"}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: noon}}}
	s.pods(1)
	s.next(Apply, v1alpha1.ConditionRunning)
	die(60)
	s.o.Pods[1].Status.Phase = corev1.PodFailed
	s.next(Stop, v1alpha1.ConditionFailed)
	if c := condition(s.job, v1alpha1.ConditionFailed); !strings.Contains(c.Message, "limit") || *s.job.Status.FirstFailure.Attempt != 1 {
		t.Fatalf("%q, attempt %d", c.Message, *s.job.Status.FirstFailure.Attempt)
	}
}

// The pods of a lost node stay: a restart waits for them only for a bounded time.
func TestRestartBesideALostNode(t *testing.T) {
	s := begun(t)
	limit := int32(3)
	s.job.Spec.RunPolicy.RestartLimit = &limit
	s.exit(0, 1, at(1))
	s.o.Now = at(5)
	s.next(Wait, v1alpha1.ConditionRestarting)
	s.o.Now = at(6)
	if p := s.next(Remove, v1alpha1.ConditionRestarting); p.Requeue != 0 {
		t.Fatalf("looks again after %v at a Job whose end is heard of", p.Requeue)
	}
	s.o.Batch = nil
	if p := s.next(Wait, v1alpha1.ConditionRestarting); p.Requeue != removalPatience-time.Second {
		t.Fatalf("looks again after %v, want the %v that are left", p.Requeue, removalPatience-time.Second)
	}
	s.o.Now = at(5).Add(removalPatience)
	s.next(Remove, v1alpha1.ConditionPending)
}

// Suspended: pods that end because of a suspension are not failures, also after it.
func TestSuspendAndResume(t *testing.T) {
	s := begun(t)
	yes, no := true, false
	s.job.Spec.RunPolicy.Suspend = &yes
	s.o.Now = at(10)
	s.o.Batch.Spec.Suspend = &yes
	s.o.Batch.Status.StartTime = nil
	s.exit(0, 143, at(10), podlife.Failure{Rank: 0, Code: 143, Reason: podlife.Terminated, Time: at(10)})
	s.next(Apply, v1alpha1.ConditionSuspended)
	s.job.Spec.RunPolicy.Suspend = &no
	s.o.Batch.Spec.Suspend = &no
	s.o.Pods[1].DeletionTimestamp = &metav1.Time{Time: at(10)}
	s.next(Apply, v1alpha1.ConditionPending) // the Job controller has not started
	s.o.Batch.Status.StartTime = &metav1.Time{Time: at(20)}
	s.o.Now = at(20)
	s.next(Apply, v1alpha1.ConditionPending)
	s.pods(0)
	for _, p := range s.o.Pods {
		p.CreationTimestamp = metav1.NewTime(at(20))
	}
	s.next(Apply, v1alpha1.ConditionRunning)
}

// A queueing controller holds the Job, and the status says so.
func TestQueued(t *testing.T) {
	s := begun(t)
	yes := true
	s.o.Batch.Spec.Suspend = &yes
	s.next(Apply, v1alpha1.ConditionSuspended)
	if c := condition(s.job, v1alpha1.ConditionSuspended); c.Reason != "Queued" {
		t.Fatalf("reason %s", c.Reason)
	}
}

// The failure's reason is what the cluster did to a pod, and not the signal that its
// ranks got.
func TestWhatTheClusterDid(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(p *corev1.Pod)
		reason  string
	}{
		"out of memory": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		}, v1alpha1.ReasonOutOfMemory},
		"nothing": {func(*corev1.Pod) {}, "RankKilled"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.exit(1, 137, at(10), podlife.Failure{Rank: 2, Code: 137, Signal: "SIGKILL", Reason: podlife.RankKilled, Time: at(10)})
			c.happens(s.o.Pods[1])
			s.o.Now = at(20)
			s.next(Stop, v1alpha1.ConditionFailed)
			s.failed(2, 137, c.reason, "cg-0-1-x", "node1")
		})
	}
}

// A missing transport that is required is not resolved by a restart.
func TestTransportMissing(t *testing.T) {
	s := begun(t)
	limit := int32(5)
	s.job.Spec.RunPolicy.RestartLimit = &limit
	s.o.Pods[1].Status.ContainerStatuses = nil
	s.sidecar(1, 78, at(2), &podlife.Message{Failures: []podlife.Failure{{Rank: podlife.NoRank, Code: 78, Reason: podlife.TransportMissing, Text: "no HCA", Time: at(2)}}})
	s.o.Now = at(10)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != "TransportMissing" || f.Pod != "cg-0-1-x" || f.Node != "node1" || f.Message != "no HCA" {
		t.Fatalf("%+v", f)
	}
}

// Pods that their node rejects are made again: the job waits with the cause in its
// message, and fails when the Job gives up.
func TestRejectedPods(t *testing.T) {
	s := begun(t)
	p := s.o.Pods[1]
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no healthy devices present"}
	s.next(Apply, v1alpha1.ConditionPending)
	c := condition(s.job, v1alpha1.ConditionPending)
	if c.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(c.Message, "no healthy devices") || !strings.Contains(c.Message, "node1") {
		t.Fatalf("%s: %s", c.Reason, c.Message)
	}
	s.batch(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	s.o.Pods[0].Status.Phase = corev1.PodFailed
	s.exit(0, 143, at(20), podlife.Failure{Rank: 0, Code: 143, Reason: podlife.Terminated, Time: at(20)})
	s.o.Now = at(30)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(f.Message, "no healthy devices") {
		t.Fatalf("first failure %+v", f)
	}
}

// A deadline counts from the start, and a restart does not extend it.
func TestDeadline(t *testing.T) {
	s := begun(t)
	limit, deadline := int32(5), int64(60)
	s.job.Spec.RunPolicy.RestartLimit, s.job.Spec.RunPolicy.ActiveDeadlineSeconds = &limit, &deadline
	s.o.Now = at(20)
	if p := s.next(Apply, v1alpha1.ConditionRunning); p.Requeue != 40*time.Second {
		t.Fatalf("looks again after %v", p.Requeue)
	}
	s.o.Now = at(60)
	s.next(Stop, v1alpha1.ConditionFailed)
	if s.job.Status.FirstFailure.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Fatalf("%+v", s.job.Status.FirstFailure)
	}
}

// The time for which a job is suspended, by the user or by a queue, does not count: the
// deadline starts again with the job, as that of a batch Job.
func TestDeadlineAfterSuspension(t *testing.T) {
	for name, own := range map[string]bool{"suspend": true, "queue": false} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.job.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(60))
			s.job.Spec.RunPolicy.Suspend, s.o.Batch.Spec.Suspend = new(own), new(true)
			s.o.Now = at(50)
			if p := s.next(Apply, v1alpha1.ConditionSuspended); s.job.Status.StartTime != nil || p.Requeue != 0 {
				t.Fatalf("suspended, with start %v, looked at again after %v", s.job.Status.StartTime, p.Requeue)
			}
			s.o.Now = at(500)
			s.next(Apply, v1alpha1.ConditionSuspended)
			s.job.Spec.RunPolicy.Suspend, s.o.Batch.Spec.Suspend = new(false), new(false)
			s.o.Batch.Status.StartTime = &metav1.Time{Time: at(500)}
			s.pods(0)
			for _, p := range s.o.Pods {
				p.CreationTimestamp = metav1.NewTime(at(500))
			}
			if p := s.next(Apply, v1alpha1.ConditionRunning); p.Requeue != time.Minute {
				t.Fatalf("looks again after %v, want the whole minute", p.Requeue)
			}
			s.o.Now = at(560)
			s.next(Stop, v1alpha1.ConditionFailed)
		})
	}
}

// The Job of a resumed job has the time of its first start until its controller has
// seen that it is resumed. Until then, neither is the deadline over nor are pods
// missing.
func TestResumeOfAnOldStart(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(60))
	s.job.Spec.RunPolicy.PendingDeadlineSeconds = new(int64(60))
	s.job.Spec.RunPolicy.Suspend, s.o.Batch.Spec.Suspend = new(true), new(true)
	s.o.Batch.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	s.o.Now, s.o.Pods = at(50), nil
	s.next(Apply, v1alpha1.ConditionSuspended)
	s.job.Spec.RunPolicy.Suspend, s.o.Batch.Spec.Suspend = new(false), new(false)
	s.o.Now = at(500)
	if s.next(Apply, v1alpha1.ConditionPending); s.job.Status.StartTime != nil {
		t.Fatalf("the start of a job that is resumed is %v", s.job.Status.StartTime)
	}
	s.o.Now = at(520)
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason == v1alpha1.ReasonPodsMissing {
		t.Fatalf("20 s after the job was resumed: %s: %s", c.Reason, c.Message)
	}
	s.o.Now = at(531)
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonPodsMissing {
		t.Fatalf("31 s after the job was resumed: %s: %s", c.Reason, c.Message)
	}
}

// A deleted Job is a failure; a Job that does not exist yet is not.
func TestJobDeleted(t *testing.T) {
	s := newStory(t)
	s.next(Apply, v1alpha1.ConditionPending)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPodLost || !strings.Contains(f.Message, "cg-0") {
		t.Fatalf("%+v", f)
	}
	// The pods of a Job that ran end a moment later; then none runs.
	s = begun(t)
	s.o.Batch = nil
	s.next(Stop, v1alpha1.ConditionFailed)
	s.o.Pods = nil
	s.next(Stop, v1alpha1.ConditionFailed)
	if r := s.job.Status.Ranks; *r.Running != 0 || *r.Failed != 4 {
		t.Fatalf("%d ranks running and %d failed of a job that is over", *r.Running, *r.Failed)
	}
}

// Pods that are not made are reported after a while, with the command that shows why.
func TestPodsMissing(t *testing.T) {
	s := begun(t)
	s.o.Pods = s.o.Pods[:1]
	s.o.Now = at(20)
	if p := s.next(Apply, v1alpha1.ConditionPending); p.Requeue != 10*time.Second {
		t.Errorf("the next look is after %v, want 10 s", p.Requeue)
	}
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != "PodsStarting" {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	s.o.Now = at(30)
	if p := s.next(Apply, v1alpha1.ConditionPending); p.Requeue != 0 {
		t.Errorf("looks again after %v, although nothing will change by itself", p.Requeue)
	}
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonPodsMissing || !strings.Contains(c.Message, "1 of 2 pods") || !strings.Contains(c.Message, "describe job cg-0") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// A node that was stopped finds containers missing when it is back. The failure is the
// loss of the containers; how they ended is not known.
func TestForgottenContainers(t *testing.T) {
	s := begun(t)
	s.sidecar(0, 255, at(5), nil)
	s.o.Pods[0].Status.InitContainerStatuses[0].State.Terminated.Reason = "Unknown"
	s.o.Now = at(10)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(0, 255, "PodLost", "cg-0-0-x", "node0")
}

// Why a job waits.
func TestWaiting(t *testing.T) {
	s := begun(t)
	s.o.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "solver", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
	}}}
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonImageUnavailable {
		t.Fatalf("%+v", c)
	}
	s.o.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"}}}
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonUnschedulable || *s.job.Status.Ranks.Pending != 2 {
		t.Fatalf("%+v", c)
	}
}

// A profile is needed to start. A job that has been started does not read it again.
func TestProfileDeleted(t *testing.T) {
	s := newStory(t)
	s.job.Spec.ProfileName, s.o.NoProfile = "fast", true
	s.next(Wait, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonProfileMissing {
		t.Fatalf("reason %s", c.Reason)
	}
	s = begun(t)
	s.job.Spec.ProfileName, s.o.NoProfile = "fast", true
	s.next(Apply, v1alpha1.ConditionRunning)
	s = newStory(t)
	s.job.Spec.PodManagement, s.job.Spec.ProfileName, s.o.NoProfile = v1alpha1.PodsExternal, "fast", true
	s.next(Wait, v1alpha1.ConditionPending)
	if Prepared(s.job) {
		t.Fatal("pods may come, and nothing has been made for them")
	}
	s.o.NoProfile = false
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.NoProfile = true
	s.next(Apply, v1alpha1.ConditionPending)
	if !Prepared(s.job) {
		t.Fatal("what has been made is not known")
	}
}

// At most one condition is True at any time. next checks this in every story; here a
// job passes through several states.
func TestConditionsTakeTurns(t *testing.T) {
	s := begun(t)
	before := condition(s.job, v1alpha1.ConditionPending)
	if before.Status != metav1.ConditionFalse {
		t.Fatalf("Pending is %s while the job runs", before.Status)
	}
	s.o.Now = at(100)
	s.next(Apply, v1alpha1.ConditionRunning)
	if after := condition(s.job, v1alpha1.ConditionPending); after.LastTransitionTime != before.LastTransitionTime {
		t.Fatal("a condition that did not change has a new time")
	}
}

// A pod that is deleted while its ranks run is drained at once: it will be gone before
// its ranks' messages are read. A pod that is deleted after a failure is not.
func TestPodDeleted(t *testing.T) {
	s := begun(t)
	grace := int64(30)
	s.o.Pods[1].DeletionTimestamp, s.o.Pods[1].DeletionGracePeriodSeconds = &metav1.Time{Time: at(40)}, &grace
	s.o.Now = at(10)
	s.next(Wait, v1alpha1.ConditionRestarting)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonDrained || *f.Rank != 2 || f.Pod != "cg-0-1-x" || f.Node != "node1" {
		t.Fatalf("%+v", f)
	}
	s = begun(t)
	s.exit(0, 3, at(5), podlife.Failure{Rank: 1, Code: 3, Reason: podlife.RankExited, Time: at(5)})
	s.o.Pods[0].Status.Phase = corev1.PodFailed
	s.o.Pods[1].DeletionTimestamp, s.o.Pods[1].DeletionGracePeriodSeconds = &metav1.Time{Time: at(40)}, &grace
	s.o.Now = at(10)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(1, 3, "RankExited", "cg-0-0-x", "node0")
}

// The pod of the first failure ends by itself, so that its output stays: a running pod
// is deleted when the job is stopped. The wait for its end is bounded.
func TestOutputOfTheFirstFailure(t *testing.T) {
	failed := func() *story {
		s := begun(t)
		s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
		s.exit(1, 3, at(10), podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Time: at(10)})
		s.o.Now = at(14)
		if p := s.next(Wait, v1alpha1.ConditionRunning); p.Requeue == 0 {
			t.Fatal("no reconciliation is due")
		}
		return s
	}
	s := failed()
	s.sidecar(1, 0, at(15), nil)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(2, 3, "RankExited", "cg-0-1-x", "node1")

	s = failed()
	s.o.Now = at(42)
	s.next(Wait, v1alpha1.ConditionRunning)
	s.o.Now = at(43)
	s.next(Stop, v1alpha1.ConditionFailed)

	s = failed()
	s.o.Pods[1].DeletionTimestamp = &metav1.Time{Time: at(15)} // deleted by another client
	s.next(Stop, v1alpha1.ConditionFailed)
}

// TestLastLines: the status has the last output lines of the pod's ranks.
func TestLastLines(t *testing.T) {
	s := begun(t)
	m := podlife.Message{Kind: podlife.KindRanks, Pod: 1, Output: "[2] no such mesh\n", Failures: []podlife.Failure{{Rank: 2, Code: 3, Reason: podlife.RankExited, Time: at(10)}}}
	s.exit(1, 3, at(10), m.Failures...)
	s.o.Pods[1].Status.ContainerStatuses[0].State.Terminated.Message = string(m.Encode())
	s.o.Now = at(14)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Output != m.Output {
		t.Errorf("%+v", f)
	}
	conforms(t, &s.job.Status)
}

// TestVerdictWaitsForTheBlamedPod: a rank exits because another one has aborted, which
// its sidecar reports only when the pod's grace period is almost over. The restart
// rules are applied after that.
func TestVerdictWaitsForTheBlamedPod(t *testing.T) {
	s := begun(t)
	s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	s.job.Spec.RunPolicy.RestartLimit = new(int32(3))
	s.job.Spec.RunPolicy.RestartRules = []v1alpha1.RestartRule{{Action: v1alpha1.ActionFail, Reasons: []string{string(podlife.JobAborted)}}}
	s.exit(0, 1, at(10), podlife.Failure{Rank: 1, Code: 1, Reason: podlife.RankExited, Time: at(10)})
	s.o.Now = at(39)
	s.next(Wait, v1alpha1.ConditionRunning)
	s.sidecar(0, 0, at(40), &podlife.Message{Failures: []podlife.Failure{{Rank: 2, Code: 4, Reason: podlife.JobAborted, Text: podlife.TextAborted, Time: at(9.5)}}})
	s.o.Now = at(41)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(2, 4, string(podlife.JobAborted), "cg-0-1-x", "node1")

	// The wait is bounded even if the grace period is long.
	s = begun(t)
	s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	s.exit(0, 1, at(10), podlife.Failure{Rank: 1, Code: 1, Reason: podlife.RankExited, Time: at(10)})
	s.o.Now = at(72)
	s.next(Wait, v1alpha1.ConditionRunning)
	s.o.Now = at(73)
	s.next(Stop, v1alpha1.ConditionFailed)

	// The ranks of a sidecar that was killed end, and have output.
	s = begun(t)
	s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	s.sidecar(0, 137, at(10), nil)
	s.o.Now = at(20)
	s.next(Wait, v1alpha1.ConditionRunning)
	s.exit(0, 1, at(21), podlife.Failure{Rank: 1, Code: 1, Reason: podlife.RankExited, Time: at(21)})
	s.o.Now = at(22)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(0, 137, string(podlife.SidecarLost), "cg-0-0-x", "node0")
}

// Pods of another controller are reported in the same way; the operator neither
// restarts nor makes them.
func TestExternalPods(t *testing.T) {
	for _, code := range []int32{0, 3} {
		s := newStory(t)
		limit := int32(3)
		s.job.Spec.PodManagement, s.job.Spec.RunPolicy.RestartLimit = v1alpha1.PodsExternal, &limit
		s.next(Apply, v1alpha1.ConditionPending)
		s.pods(0)
		s.next(Apply, v1alpha1.ConditionRunning)
		if s.job.Status.StartTime == nil || s.job.Status.JobName != "" {
			t.Fatalf("status %+v", s.job.Status)
		}
		phase, want := corev1.PodSucceeded, v1alpha1.ConditionComplete
		if code != 0 {
			phase, want = corev1.PodFailed, v1alpha1.ConditionFailed
		}
		for i := range 2 {
			s.exit(i, code, at(10))
			s.o.Pods[i].Status.Phase = phase
		}
		s.o.Now = at(20)
		s.next(Stop, want)
	}
}

// A pod of another controller that disappears without a report of its end fails the
// job: no other pod can replace it.
func TestExternalPodVanishes(t *testing.T) {
	for _, ahead := range []float64{0, 3600, -3600} {
		externalPodVanishes(t, ahead)
	}
}

func externalPodVanishes(t *testing.T, ahead float64) {
	t.Helper()
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.next(Apply, v1alpha1.ConditionPending)
	s.pods(0)
	all := s.o.Pods
	s.o.Pods = all[:1] // the other pod has not been made yet, which is not a failure
	s.o.Now = at(300)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Pods = all
	s.next(Apply, v1alpha1.ConditionRunning)
	s.o.Pods, s.o.Now = all[:1], at(400)
	s.next(Apply, v1alpha1.ConditionPending)
	// The replica that wrote this had another clock.
	meta.FindStatusCondition(s.job.Status.Conditions, v1alpha1.ConditionPending).LastTransitionTime = metav1.NewTime(at(400 + ahead))
	if p := s.next(Apply, v1alpha1.ConditionPending); p.Requeue != vanishedPatience {
		t.Errorf("looks again after %v", p.Requeue)
	}
	s.o.Now = at(400).Add(vanishedPatience)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPodLost || *f.Rank != 2 {
		t.Errorf("%+v", f)
	}
}

// TestContainersExit: a rank without a launcher is judged by its container's exit code,
// and restart rules for that code apply.
func TestContainersExit(t *testing.T) {
	for _, c := range []struct {
		code           int32
		kubelet        string
		reason, signal string
		restarts       bool
	}{
		{3, "Error", "RankExited", "", true},
		{4, "Error", "RankExited", "", false},
		{255, "Error", "RankExited", "", false},
		{128, "StartError", "RankExited", "", false},
		{139, "Error", "RankKilled", "SIGSEGV", false},
		{137, "OOMKilled", v1alpha1.ReasonOutOfMemory, "", false},
		{3, "OOMKilled", v1alpha1.ReasonOutOfMemory, "", false},
	} {
		s := begun(t)
		s.job.Spec.LaunchMode, s.job.Spec.RunPolicy.RestartLimit = v1alpha1.LaunchContainer, new(int32(2))
		s.job.Spec.RunPolicy.RestartRules = []v1alpha1.RestartRule{
			{Action: v1alpha1.ActionRestart, Reasons: []string{"RankExited"}, ExitCodes: []int32{3}}, {Action: v1alpha1.ActionFail},
		}
		s.exit(1, c.code, at(10))
		s.o.Pods[1].Status.ContainerStatuses[0].State.Terminated.Reason = c.kubelet
		s.o.Pods[1].Status.Phase = corev1.PodFailed
		s.o.Now = at(20)
		if c.restarts {
			s.next(Wait, v1alpha1.ConditionRestarting)
		} else {
			s.next(Stop, v1alpha1.ConditionFailed)
		}
		s.failed(2, c.code, c.reason, "cg-0-1-x", "node1")
		if f := s.job.Status.FirstFailure; !strings.Contains(f.Message, c.signal) || strings.Contains(f.Message, "Error") != (c.kubelet == "StartError") {
			t.Errorf("code %d (%s): message %q", c.code, c.kubelet, f.Message)
		}
	}
}

// TestApplicationOfAnotherName: the application of another controller's pod is the
// container that the webhook has recorded, and no other.
func TestApplicationOfAnotherName(t *testing.T) {
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.next(Apply, v1alpha1.ConditionPending)
	s.pods(0)
	for _, p := range s.o.Pods {
		p.Annotations = map[string]string{names.AnnotationContainer: "main"}
		p.Status.ContainerStatuses[0].Name = "main"
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "solver", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}})
	}
	s.next(Apply, v1alpha1.ConditionRunning)
	for i := range 2 {
		s.exit(i, 0, at(10))
		s.o.Pods[i].Status.Phase = corev1.PodSucceeded
	}
	s.next(Stop, v1alpha1.ConditionComplete)
}

// TestPodsOwnDeadline: a pod that the kubelet ends for its spec's activeDeadlineSeconds
// is reported with that reason, and not as killed.
func TestPodsOwnDeadline(t *testing.T) {
	for _, told := range []bool{true, false} {
		s := begun(t)
		s.job.Spec.RunPolicy.RestartLimit = new(int32(2))
		for i := range 2 {
			rank := podlife.Failure{Rank: 2 * i, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated, Text: "was ended", Time: at(10)}
			if told {
				s.exit(i, 143, at(10), rank)
			} else {
				s.exit(i, 137, at(10))
			}
			s.o.Pods[i].Status.Phase, s.o.Pods[i].Status.Reason = corev1.PodFailed, "DeadlineExceeded"
			s.o.Pods[i].Status.Message = "Pod was active on the node longer than the specified deadline"
		}
		s.o.Now = at(20)
		s.next(Stop, v1alpha1.ConditionFailed)
		if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonDeadlineExceeded || !strings.Contains(f.Message, "activeDeadlineSeconds") {
			t.Errorf("told %v: %s: %s", told, f.Reason, f.Message)
		}
	}
}

// TestContainerToldToEnd: the message of a container that the kubelet ends because of a
// probe names that possibility; the message of a deleted pod does not.
func TestContainerToldToEnd(t *testing.T) {
	for deleted, reason := range map[bool]string{false: "Terminated", true: v1alpha1.ReasonDrained} {
		s := begun(t)
		agreed := &podlife.Message{Failures: []podlife.Failure{{Rank: 3, Code: 1, Reason: podlife.RankVanished, Text: podlife.TextVanished, Time: at(10)}}}
		if deleted {
			s.o.Pods[1].DeletionTimestamp, s.o.Pods[1].DeletionGracePeriodSeconds = &metav1.Time{Time: at(39)}, new(int64(30))
		}
		s.exit(1, 143, at(10), podlife.Failure{Rank: 3, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated, Text: "was killed by SIGTERM", Time: at(10.1)})
		s.sidecar(1, 0, at(11), agreed)
		s.exit(0, 1, at(11), podlife.Failure{Rank: 0, Code: 1, Reason: podlife.RankExited, Text: "exited with code 1", Time: at(10.5)})
		s.sidecar(0, 0, at(11), agreed)
		s.o.Now = at(20)
		if deleted {
			s.next(Wait, v1alpha1.ConditionRestarting)
		} else {
			s.next(Stop, v1alpha1.ConditionFailed)
		}
		if f := s.job.Status.FirstFailure; f.Reason != reason || f.Pod != "cg-0-1-x" || strings.Contains(f.Message, "probe") == deleted || strings.Contains(f.Message, "MPI_Finalize") {
			t.Errorf("deleted %v: %s in %s: %s", deleted, f.Reason, f.Pod, f.Message)
		}
	}
}

// TestFailuresNameTheirRemedy: the message of a failure has the command that shows the
// output, and the limit that was too small.
func TestFailuresNameTheirRemedy(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	for want, happens := range map[string]func(s *story, p *corev1.Pod){
		"exited with code 3; its output: `kubectl logs cg-0-1-x -c solver`": func(s *story, _ *corev1.Pod) {
			s.exit(1, 3, at(10), podlife.Failure{Rank: 3, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)})
		},
		"the application used more memory than its limit of 1Gi: ": func(s *story, p *corev1.Pod) {
			s.exit(1, 137, at(10))
			p.Spec.Containers = []corev1.Container{{Name: "solver", Resources: limits}}
			p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		},
		"the sidecar used more memory than its limit of 1Gi: ": func(s *story, p *corev1.Pod) {
			s.sidecar(1, 137, at(10), nil)
			p.Spec.InitContainers = []corev1.Container{{Name: names.ContainerSidecar, Resources: limits}}
			p.Status.InitContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
		},
		"init container fetch ended with exit code 7: Error no such file; its output: `kubectl logs cg-0-1-x -c fetch`": func(s *story, p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "fetch", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "Error", Message: "no such file"}},
			}}}
			s.notice(at(10), 7)
		},
	} {
		s := begun(t)
		happens(s, s.o.Pods[1])
		s.o.Now = at(20)
		s.next(Stop, v1alpha1.ConditionFailed)
		if m := s.job.Status.FirstFailure.Message; !strings.Contains(m, want) {
			t.Errorf("the failure is %q, want %q", m, want)
		}
	}
}
