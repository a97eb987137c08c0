package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A node whose clock is wrong neither delays a verdict nor causes an early one.
func TestClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			s := begun(t)
			s.exit(1, 3, at(10).Add(skew), podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Time: at(10).Add(skew)})
			s.o.Noticed, s.o.Now = at(11), at(11)
			s.next(Wait, v1alpha1.ConditionRunning)
			s.o.Now = at(11).Add(settle + s.o.readPatience())
			s.next(Stop, v1alpha1.ConditionFailed)
			s.failed(2, 3, "RankExited", "cg-0-1-x", "node1")
		})
	}
}

// However many pods fail at once, and whatever the Job reports, the cause is the pods'
// failure.
func TestManyPodsFail(t *testing.T) {
	s := begun(t)
	s.job.Spec.Ranks = 50
	s.o.Pods = nil
	for i := range 25 {
		s.o.Pods = append(s.o.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("cg-0-%d-x", i), CreationTimestamp: metav1.NewTime(noon),
				Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(i)},
			},
			Spec:   corev1.PodSpec{NodeName: "node"},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "solver"}}, InitContainerStatuses: []corev1.ContainerStatus{{Name: "outrigger"}}},
		})
		s.exit(i, 143, at(10), podlife.Failure{Rank: 2 * i, Code: 143, Reason: podlife.Terminated, Time: at(10 + float64(i)/100)})
	}
	s.batch(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	s.o.Now = at(20)
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(0, 143, "Terminated", "cg-0-0-x", "node")
}

// A pod that nodes reject again and again ends the job. In a large job, each of the
// others may be rejected once or twice.
func TestRejectedTooOften(t *testing.T) {
	rejected := func(s *story, index, times int) {
		for i := range times {
			s.o.Pods = append(s.o.Pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("cg-0-%d-%d", index, i), CreationTimestamp: metav1.NewTime(at(float64(i))),
					Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index)},
				},
				Spec:   corev1.PodSpec{NodeName: "node1"},
				Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "no room"},
			})
		}
	}
	s := begun(t)
	s.o.Pods = nil
	rejected(s, 0, rejectionLimit)
	rejected(s, 1, rejectionLimit)
	s.next(Apply, v1alpha1.ConditionPending)
	rejected(s, 1, 1)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPodRejected || f.Node != "node1" || *f.Rank != 2 || !strings.Contains(f.Message, "no room") {
		t.Errorf("%+v", f)
	}
}

// In a group of pods, the message names the pod that does not fit, and not one that
// fits and waits for it. Volcano reports both as having no node.
func TestGroupWaits(t *testing.T) {
	place := func(p *corev1.Pod, reason, message string) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}}}
	}
	s := begun(t)
	place(s.o.Pods[0], "Schedulable", "can possibly be assigned to node2")
	place(s.o.Pods[1], corev1.PodReasonUnschedulable, "2 Insufficient cpu")
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonUnschedulable || c.Message != "pod cg-0-1-x: 2 Insufficient cpu" {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	place(s.o.Pods[1], "Schedulable", "can possibly be assigned to node1")
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); c.Reason != v1alpha1.ReasonUnschedulable || c.Message != "pod cg-0-0-x waits for the others of its group: can possibly be assigned to node2" {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// The message names what a pod waits for, with the text of the component that holds it
// up.
func TestObstacles(t *testing.T) {
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}}
	for name, c := range map[string]struct {
		status         corev1.PodStatus
		reason, within string
	}{
		"configuration": {
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "solver", State: waits("CreateContainerConfigError", `secret "licence" not found`)}}},
			v1alpha1.ReasonContainerWaiting, `container solver: CreateContainerConfigError: secret "licence" not found`,
		},
		"creation": {
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "solver", State: waits("CreateContainerError", "no command")}}},
			v1alpha1.ReasonContainerWaiting, "no command",
		},
		"init container": {
			corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "proxy", State: waits("CrashLoopBackOff", "back-off 40s"), LastTerminationState: ended}}},
			v1alpha1.ReasonContainerWaiting, "container proxy: CrashLoopBackOff: back-off 40s (it ended with exit code 2",
		},
		"gates": {
			corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}}},
			v1alpha1.ReasonSchedulingGated, "schedulingGates",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			c.status.Phase = corev1.PodPending
			s.o.Pods[1].Status = c.status
			s.next(Apply, v1alpha1.ConditionPending)
			if got := condition(s.job, v1alpha1.ConditionPending); got.Reason != c.reason || !strings.Contains(got.Message, c.within) || !strings.Contains(got.Message, "cg-0-1-x") {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		})
	}
}

// The time before a restart grows with each restart.
func TestRestartsWait(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.RestartLimit = new(int32(1000))
	s.job.Status.Restarts = new(int32(4))
	s.exit(0, 1, at(1))
	s.o.Now = at(5)
	s.next(Wait, v1alpha1.ConditionRestarting)
	s.o.Batch, s.o.Pods = nil, nil
	s.o.Now = at(6)
	if p := s.next(Wait, v1alpha1.ConditionRestarting); p.Requeue != 15*time.Second {
		t.Errorf("looks again after %v, want the 15 s that are left", p.Requeue)
	}
	s.o.Now = at(21)
	s.next(Remove, v1alpha1.ConditionPending)
	if *s.job.Status.Restarts != 5 {
		t.Errorf("restart %d", *s.job.Status.Restarts)
	}
	if first, last := backoff(1), backoff(1000); first != backoffMin || last != backoffMax {
		t.Errorf("the first restart waits %v, the last %v", first, last)
	}
}

// A partially started job holds nodes. It ends after the pending deadline, and may be
// restarted.
func TestPendingDeadline(t *testing.T) {
	for _, restarts := range []int32{0, 1} {
		s := begun(t)
		s.job.Spec.RunPolicy.PendingDeadlineSeconds, s.job.Spec.RunPolicy.RestartLimit = new(int64(60)), &restarts
		s.o.Now = at(100)
		s.next(Apply, v1alpha1.ConditionRunning) // all ranks have been started
		s.o.Pods[1].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"}}}
		s.o.Now = at(20)
		if p := s.next(Apply, v1alpha1.ConditionPending); p.Requeue != 40*time.Second {
			t.Errorf("looks again after %v, want the 40 s that are left", p.Requeue)
		}
		s.o.Now = at(60)
		if restarts == 0 {
			s.next(Stop, v1alpha1.ConditionFailed)
		} else {
			s.next(Wait, v1alpha1.ConditionRestarting)
		}
		if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPendingDeadlineExceeded || !strings.Contains(f.Message, "0/2 nodes") || *f.Attempt != 0 {
			t.Errorf("%+v", f)
		}
	}
}

// The first rule that matches a failure decides whether the job is restarted.
func TestRestartRules(t *testing.T) {
	rules := []v1alpha1.RestartRule{
		{Action: v1alpha1.ActionRestart, Reasons: []string{"RankExited"}, ExitCodes: []int32{75}},
		{Action: v1alpha1.ActionRestart, Reasons: []string{"PodLost"}},
		{Action: v1alpha1.ActionFail},
	}
	for name, c := range map[string]struct {
		rules []v1alpha1.RestartRule
		code  int32
		want  string
	}{
		"no rules":      {nil, 3, v1alpha1.ConditionRestarting},
		"asked for":     {rules, 75, v1alpha1.ConditionRestarting},
		"another code":  {rules, 3, v1alpha1.ConditionFailed},
		"of no rule":    {rules[:1], 3, v1alpha1.ConditionRestarting},
		"no such cause": {[]v1alpha1.RestartRule{{Action: v1alpha1.ActionFail, Reasons: []string{"PodLost"}}}, 3, v1alpha1.ConditionRestarting},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.job.Spec.RunPolicy.RestartLimit, s.job.Spec.RunPolicy.RestartRules = new(int32(5)), c.rules
			for i := range 2 {
				s.exit(i, c.code, at(10), podlife.Failure{Rank: 2 * i, Code: int(c.code), Reason: podlife.RankExited, Time: at(10)})
				s.o.Pods[i].Status.Phase = corev1.PodFailed
			}
			s.o.Now = at(20)
			action := Wait
			if c.want == v1alpha1.ConditionFailed {
				action = Stop
			}
			s.next(action, c.want)
		})
	}
}

// A queue that holds the Job of a restart does not restart the deadline, which covers
// all attempts.
func TestDeadlineOfQueuedRestart(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.ActiveDeadlineSeconds, s.job.Spec.RunPolicy.RestartLimit = new(int64(60)), new(int32(3))
	s.exit(0, 1, at(1))
	s.o.Now = at(5)
	s.next(Wait, v1alpha1.ConditionRestarting)
	s.o.Batch, s.o.Pods, s.o.Now = nil, nil, at(10)
	s.next(Remove, v1alpha1.ConditionPending)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cg-1"}, Spec: batchv1.JobSpec{Suspend: new(true)}}
	if p := s.next(Apply, v1alpha1.ConditionSuspended); p.Requeue != 50*time.Second {
		t.Errorf("looks again after %v, want the 50 s that are left", p.Requeue)
	}
	s.o.Now = at(60)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("%+v", f)
	}
}
