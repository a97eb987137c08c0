package verdict

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Every rank exits with 0, and one of them has not called Close: the Job is complete,
// and the MPIJob has failed, as with outrigger run. The cache has the end of the Job
// before that of the last sidecar.
func TestExitWithoutClose(t *testing.T) {
	s := begun(t)
	s.o.Now = at(30)
	for pod := range 2 {
		s.exit(pod, 0, at(29))
	}
	s.o.Batch.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(29.5))}}
	if p := s.next(Wait, v1alpha1.ConditionRunning); p.Requeue <= 0 || p.Requeue > settle {
		t.Fatalf("looks again after %v", p.Requeue)
	}
	for pod := range 2 {
		s.sidecar(pod, 0, at(30), &podlife.Message{Failures: []podlife.Failure{{Rank: 3, Code: 1, Reason: podlife.RankVanished, Text: podlife.TextVanished, Time: at(29)}}})
		s.o.Pods[pod].Status.Phase = corev1.PodSucceeded
	}
	s.next(Stop, v1alpha1.ConditionFailed)
	s.failed(3, 1, "RankVanished", "cg-0-1-x", "node1")
	if f := s.job.Status.FirstFailure; !strings.Contains(f.Message, "Close") || *f.Attempt != 0 {
		t.Errorf("%+v", f)
	}
}

// The same failure causes a restart if the job asks for it.
func TestExitWithoutCloseIsRestarted(t *testing.T) {
	s := begun(t)
	limit := int32(1)
	s.job.Spec.RunPolicy.RestartLimit = &limit
	for pod := range 2 {
		s.exit(pod, 0, at(29))
		s.sidecar(pod, 0, at(30), &podlife.Message{Failures: []podlife.Failure{{Rank: 0, Code: 3, Reason: podlife.JobAborted, Text: "called Abort", Time: at(29)}}})
		s.o.Pods[pod].Status.Phase = corev1.PodSucceeded
	}
	s.batch(batchv1.JobComplete, "")
	s.next(Wait, v1alpha1.ConditionRestarting)
}

// A pod whose end is never reported, and clocks that differ, do not delay the end of a
// job. A sidecar that fails after its ranks have ended does not fail the job.
func TestEndIsNotHeldUp(t *testing.T) {
	for what, ended := range map[string]float64{"long ago": 10, "by a clock that is ahead": 4000} {
		s := begun(t)
		s.o.Now = at(30)
		for pod := range 2 {
			s.exit(pod, 0, at(9))
		}
		s.sidecar(0, 137, at(10), nil)
		s.o.Batch.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(ended))}}
		o := s.o
		if p := Next(&o); condition(&v1alpha1.MPIJob{Status: p.Status}, v1alpha1.ConditionComplete).Status != metav1.ConditionTrue {
			t.Errorf("%s: %+v", what, p)
		}
	}
}
