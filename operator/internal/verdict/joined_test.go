package verdict

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// awaiting returns a story whose applications run while their sidecars wait.
func awaiting(t *testing.T) *story {
	s := newStory(t)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: s.job.Status.JobName}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: noon}}}
	s.pods(0)
	for _, p := range s.o.Pods {
		p.Status.InitContainerStatuses[0].Ready = false
	}
	return s
}

// TestRanksStartWithTheirSidecar: ranks count as started when their sidecars are ready,
// and not when their applications run. While a sidecar is not ready, which may last for
// days, the job is Pending with the cause in the message, and does not fail.
func TestRanksStartWithTheirSidecar(t *testing.T) {
	s := awaiting(t)
	p := s.next(Apply, v1alpha1.ConditionPending)
	if r := s.job.Status.Ranks; *r.Pending != 4 || *r.Running != 0 {
		t.Errorf("%d ranks pending, %d running", *r.Pending, *r.Running)
	}
	if Ran(s.job) {
		t.Error("all ranks have been started, as it seems")
	}
	s.o.Now = at(11)
	o := s.o
	if job, pod, left := Unclear(&o, &p); job || pod != s.o.Pods[0] || left != 0 {
		t.Errorf("it is pod %v that is asked", pod)
	}
	s.o.Told = Told{Pod: s.o.Pods[0].Name, Waits: "the sidecar waits for a certificate from https://issuer: connection refused"}
	s.next(Apply, v1alpha1.ConditionPending)
	if c := condition(s.job, v1alpha1.ConditionPending); !strings.Contains(c.Message, "0 of 4 ranks run; pod cg-0-0-x: the sidecar waits for a certificate from https://issuer: connection refused") {
		t.Errorf("the status says %q", c.Message)
	}
	s.o.Now = at(3 * 24 * 3600)
	s.o.Pods[0].Status.InitContainerStatuses[0].Ready = true
	s.next(Apply, v1alpha1.ConditionPending)
	if r := s.job.Status.Ranks; *r.Pending != 2 || *r.Running != 2 {
		t.Errorf("%d ranks pending, %d running", *r.Pending, *r.Running)
	}
	s.o.Pods[1].Status.InitContainerStatuses[0].Ready = true
	s.next(Apply, v1alpha1.ConditionRunning)
	// A restarted kubelet does not know the readiness for a while.
	s.o.Pods[0].Status.InitContainerStatuses[0].Ready = false
	s.next(Apply, v1alpha1.ConditionRunning)
	if r := s.job.Status.Ranks; *r.Running != 4 || !Ran(s.job) {
		t.Errorf("%d ranks run", *r.Running)
	}
}

// TestPendingDeadlineEndsTheWait: only the pending deadline ends the wait, and its
// message names what the sidecar waited for.
func TestPendingDeadlineEndsTheWait(t *testing.T) {
	s := awaiting(t)
	seconds := int64(600)
	s.job.Spec.RunPolicy.PendingDeadlineSeconds = &seconds
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Told = Told{Pod: s.o.Pods[0].Name, Waits: "the sidecar waits for the node's agent"}
	s.o.Now = at(599)
	if p := s.next(Apply, v1alpha1.ConditionPending); p.Requeue != time.Second {
		t.Errorf("looks again after %v", p.Requeue)
	}
	s.o.Now = at(600)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonPendingDeadlineExceeded || !strings.Contains(f.Message, "the sidecar waits for the node's agent") {
		t.Errorf("%s: %s", f.Reason, f.Message)
	}
}

// TestLaunchersThatEndCount: the ranks of a launcher that has ended are not pending,
// whatever its sidecar waits for.
func TestLaunchersThatEndCount(t *testing.T) {
	s := awaiting(t)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	if n := s.o.count(); n[podFailed] != 2 || n[podPending] != 2 {
		t.Errorf("ranks by state: %v", n)
	}
}

// TestVerdictDoesNotWaitForALostNode: the end of a pod on a node that is not Ready is
// not reported, so the verdict does not wait for its sidecar's message. It waits for
// those on other nodes.
func TestVerdictDoesNotWaitForALostNode(t *testing.T) {
	for _, lost := range []string{"", "node0", "node1"} {
		s := begun(t)
		*s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = 30
		s.exit(1, 3, at(10), podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)})
		s.o.Now = at(10).Add(settle)
		if p := s.next(Wait, v1alpha1.ConditionRunning); p.Reads != "node1" {
			t.Fatalf("it waits for a pod of node %q", p.Reads)
		}
		s.o.Lost = lost
		if lost != "node1" {
			s.next(Wait, v1alpha1.ConditionRunning)
			continue
		}
		s.next(Stop, v1alpha1.ConditionFailed)
		s.failed(2, 3, "RankExited", "cg-0-1-x", "node1")
	}
}
