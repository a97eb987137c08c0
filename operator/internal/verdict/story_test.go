package verdict

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// noon is the start time of the stories.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// story is a job of 4 ranks in 2 pods, with its events.
type story struct {
	t   *testing.T
	o   Observation
	job *v1alpha1.MPIJob
}

func newStory(t *testing.T) *story {
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Namespace: "hpc", Generation: 1}}
	j.Spec.Ranks, j.Spec.RanksPerPod = 4, 2
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver"}}
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64) // stories about the wait for sidecars set another one
	return &story{t: t, job: j, o: Observation{Job: j, Now: noon}}
}

// begun returns a story whose pods run.
func begun(t *testing.T) *story {
	s := newStory(t)
	s.next(Apply, v1alpha1.ConditionPending)
	s.o.Batch = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: s.job.Status.JobName}, Status: batchv1.JobStatus{StartTime: &metav1.Time{Time: noon}}}
	s.pods(0)
	s.next(Apply, v1alpha1.ConditionRunning)
	return s
}

// pods adds two running pods of an attempt.
func (s *story) pods(attempt int) {
	s.o.Pods = nil
	for i := range 2 {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("cg-%d-%d-x", attempt, i), CreationTimestamp: metav1.NewTime(noon),
				Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(i)},
			},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node%d", i)},
			Status: corev1.PodStatus{
				Phase:                 corev1.PodRunning,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: names.ContainerSidecar, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "solver", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
			},
		}
		s.o.Pods = append(s.o.Pods, p)
	}
}

// exit ends a pod's application, with its launcher's message if there are failures.
func (s *story) exit(pod int, code int32, when time.Time, failures ...podlife.Failure) {
	text := ""
	if failures != nil {
		text = string((&podlife.Message{Kind: podlife.KindRanks, Pod: pod, Failures: failures}).Encode())
	}
	s.notice(when, code)
	s.o.Pods[pod].Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(when), Message: text, Reason: "Error"}}
}

// notice sets the state of a controller that sees a failure as it happens.
func (s *story) notice(when time.Time, code int32) {
	if code != 0 && s.o.Noticed.IsZero() {
		s.o.Noticed = when
	}
}

// sidecar ends a pod's sidecar with a message.
func (s *story) sidecar(pod int, code int32, when time.Time, m *podlife.Message) {
	text := ""
	if m != nil {
		m.Kind, m.Pod = podlife.KindSidecar, pod
		text = string(m.Encode())
	}
	s.notice(when, code)
	s.o.Pods[pod].Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(when), Message: text}}
	if c := s.o.Pods[pod].Status.ContainerStatuses; c != nil && c[0].State.Terminated != nil {
		s.o.Pods[pod].Status.Phase = corev1.PodFailed
	}
}

// batch adds a condition to the batch Job.
func (s *story) batch(kind batchv1.JobConditionType, reason string) {
	s.o.Batch.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason}}
}

// next returns the plan, checks it, and sets the status as the controller would write
// it.
func (s *story) next(action Action, condition string) Plan {
	s.t.Helper()
	o := s.o
	if !Sign(&o) {
		s.o.Noticed, o.Noticed = time.Time{}, time.Time{}
	}
	switch absent := Absent(&o); {
	case absent < 0:
		s.o.Missing = time.Time{}
	case s.o.Missing.IsZero():
		s.o.Missing = o.Now
	}
	o.Missing = s.o.Missing
	p := Next(&o)
	got := ""
	for _, c := range p.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			got += c.Type
		}
	}
	if p.Action != action || got != condition {
		s.t.Fatalf("action %d and condition %q, want %d and %q; first failure %+v", p.Action, got, action, condition, p.Status.FirstFailure)
	}
	s.job.Status = p.Status
	return p
}

func (s *story) failed(rank, code int32, reason, pod, node string) {
	s.t.Helper()
	f := s.job.Status.FirstFailure
	if f == nil {
		s.t.Fatal("no first failure")
	}
	if f.Rank == nil || *f.Rank != rank || f.ExitCode == nil || *f.ExitCode != code || f.Reason != reason || f.Pod != pod || f.Node != node {
		s.t.Fatalf("first failure %+v (rank %v, code %v), want rank %d, code %d, %s in %s on %s", f, deref(f.Rank), deref(f.ExitCode), rank, code, reason, pod, node)
	}
}

func deref(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

func condition(j *v1alpha1.MPIJob, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(j.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
