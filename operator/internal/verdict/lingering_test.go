package verdict

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// meshed returns a running job with a container of another webhook in each of its pods.
func meshed(t *testing.T) *story {
	s := begun(t)
	for i, p := range s.o.Pods {
		p.UID = types.UID(string(rune('a' + i)))
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "mesh-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	return s
}

// well ends a pod's ranks with 0, with the given outcome in the launcher's message.
func (s *story) well(pod int, when float64, outcome podlife.Outcome) {
	s.exit(pod, 0, at(when))
	s.o.Pods[pod].Status.ContainerStatuses[0].State.Terminated.Message = string((&podlife.Message{Kind: podlife.KindRanks, Pod: pod, Outcome: outcome}).Encode())
}

// TestMeshKeepsNoJobRunning: a job ends although the containers of a service mesh run
// on after the ranks.
func TestMeshKeepsNoJobRunning(t *testing.T) {
	s := meshed(t)
	s.o.Now = at(20)
	s.well(0, 20, podlife.OutcomeClosed)
	s.next(Apply, v1alpha1.ConditionRunning) // the other pod still runs
	s.well(1, 20, podlife.OutcomeClosed)
	if p := s.next(Wait, v1alpha1.ConditionRunning); p.Requeue != settle {
		t.Fatalf("looks again after %v", p.Requeue)
	}
	s.o.Now = at(20).Add(settle)
	p := s.next(Stop, v1alpha1.ConditionComplete)
	if r := s.job.Status.Ranks; *r.Succeeded != 4 || s.job.Status.FirstFailure != nil {
		t.Errorf("status %+v", s.job.Status)
	}
	if f := Cause(&p); f == nil || f.Reason != reasonSucceeded {
		t.Errorf("the Job ends for %+v", f)
	}
}

// TestGoodEndSurvivesTheOperator: if the operator is killed after it has ended the Job
// of such a job, and before it writes the status, the next operator finds a failed Job
// and still reports the success.
func TestGoodEndSurvivesTheOperator(t *testing.T) {
	s := begun(t)
	s.job.Status.FirstFailure = &v1alpha1.Failure{Reason: "RankExited"} // a pod of an earlier attempt
	patch, err := desired.Ending(Cause(&Plan{Status: v1alpha1.MPIJobStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue}}}})).Of(s.o.Batch)
	if err != nil || !strings.Contains(string(patch), `RanksSucceeded`) {
		t.Fatalf("%s, %v", patch, err)
	}
	s.o.Batch.Spec.ActiveDeadlineSeconds = new(int64(1))
	s.o.Batch.Annotations = map[string]string{"outrigger.dev/cause": `{"reason":"RanksSucceeded"}`}
	s.batch(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	s.o.Pods = nil
	s.next(Stop, v1alpha1.ConditionComplete)
}

// TestMeshHidesNoFailure: the sidecar's report of a failure counts although the pod
// never ends.
func TestMeshHidesNoFailure(t *testing.T) {
	vanished := &podlife.Failure{Rank: 3, Code: 1, Reason: podlife.RankVanished, Text: podlife.TextVanished, Time: at(20)}
	for what, c := range map[string]struct {
		outcome podlife.Outcome
		said    Said
		reason  string
	}{
		"the sidecar tells":         {podlife.OutcomeFailed, Said{"b": vanished}, "RankVanished"},
		"only the launcher tells":   {podlife.OutcomeFailed, nil, "JobFailed"},
		"the launcher says nothing": {"", Said{"b": vanished}, "RankVanished"},
	} {
		s := meshed(t)
		s.well(0, 20, podlife.OutcomeClosed)
		s.well(1, 20, c.outcome)
		s.o.Said, s.o.Now = c.said, at(20).Add(unheardPatience)
		if ask := Unheard(&s.o); len(ask) != 1 || ask[0].UID != "b" {
			t.Errorf("%s: asks %v", what, ask)
		}
		s.next(Stop, v1alpha1.ConditionFailed)
		if f := s.job.Status.FirstFailure; f.Reason != c.reason || f.Pod != "cg-0-1-x" || *f.Attempt != 0 {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

// TestMeshWithoutLauncher: ranks that run without a launcher leave no message. Their
// sidecars are asked; otherwise, the job waits for a failure that other pods report.
func TestMeshWithoutLauncher(t *testing.T) {
	for what, c := range map[string]struct {
		said  Said
		after float64
	}{
		"the sidecars answer":                {Said{"a": nil, "b": nil}, settle.Seconds()},
		"one does not":                       {Said{"a": nil}, unheardPatience.Seconds()},
		"an unknown word of a later release": {Said{"a": nil, "b": nil}, settle.Seconds()},
	} {
		s := meshed(t)
		s.job.Spec.LaunchMode = v1alpha1.LaunchContainer
		s.exit(0, 0, at(19))
		s.exit(1, 0, at(20))
		if strings.HasPrefix(what, "an unknown") {
			s.well(1, 20, "Later")
		}
		s.o.Said = c.said
		s.o.Now = at(20 + c.after - 1)
		s.next(Wait, v1alpha1.ConditionRunning)
		s.o.Now = at(20 + c.after)
		s.next(Stop, v1alpha1.ConditionComplete)
	}
}

// TestPodsThatEndAreWaitedFor: the operator does not end the Job of a job whose pods
// end by themselves; the Job would otherwise report a deadline that no user has set.
func TestPodsThatEndAreWaitedFor(t *testing.T) {
	for what, change := range map[string]func(s *story){
		"no other container": func(s *story) {
			for _, p := range s.o.Pods {
				p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1]
			}
		},
		"the other containers have ended": func(s *story) {
			for _, p := range s.o.Pods {
				p.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			}
		},
		"one pod is missing":    func(s *story) { s.o.Pods = s.o.Pods[:1] },
		"one sidecar has ended": func(s *story) { s.sidecar(1, 0, at(21), nil); s.o.Pods[1].Status.Phase = corev1.PodRunning },
	} {
		s := meshed(t)
		s.well(0, 20, podlife.OutcomeClosed)
		s.well(1, 20, podlife.OutcomeClosed)
		s.o.Now = at(40)
		change(s)
		o := s.o
		if p := Next(&o); p.Action != Apply {
			t.Errorf("%s: action %d", what, p.Action)
		}
		if ask := Unheard(&o); ask != nil {
			t.Errorf("%s: asks %d", what, len(ask))
		}
	}
}

// TestMeshOfOthersPods: pods of another controller are not ended, even if some of them
// have ended.
func TestMeshOfOthersPods(t *testing.T) {
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.next(Apply, v1alpha1.ConditionPending)
	s.pods(0)
	for _, p := range s.o.Pods {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "logs", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}})
	}
	s.next(Apply, v1alpha1.ConditionRunning)
	s.well(0, 20, podlife.OutcomeClosed)
	s.well(1, 20, podlife.OutcomeClosed)
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.o.Now = at(40)
	s.next(Stop, v1alpha1.ConditionComplete)
}

// TestMeshHoldsUpNoVerdict: the verdict on a failure waits for the application and the
// sidecar of the failed pod, and for no other container of it: neither for a running
// one, nor for one that never started, nor for a native sidecar of another webhook, in
// any order.
func TestMeshHoldsUpNoVerdict(t *testing.T) {
	always := func(state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "mesh-init", State: state}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for what, add := range map[string]func(s *corev1.PodStatus){
		"none":     func(*corev1.PodStatus) {},
		"one runs": func(s *corev1.PodStatus) { s.ContainerStatuses = append(s.ContainerStatuses, always(running)) },
		"one waits": func(s *corev1.PodStatus) {
			s.ContainerStatuses = append(s.ContainerStatuses, always(waiting))
		},
		"a native one runs behind": func(s *corev1.PodStatus) {
			s.InitContainerStatuses = append(s.InitContainerStatuses, always(running))
		},
		"a native one waits behind": func(s *corev1.PodStatus) {
			s.InitContainerStatuses = append(s.InitContainerStatuses, always(waiting))
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := begun(t)
			s.job.Spec.RunPolicy.RestartLimit, s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int32(0)), new(int64(30))
			s.exit(1, 3, at(20), podlife.Failure{Rank: 2, Code: 3, Reason: podlife.RankExited, Text: "exit code 3", Time: at(20)})
			add(&s.o.Pods[1].Status)
			s.o.Now = at(20).Add(settle)
			s.next(Wait, v1alpha1.ConditionRunning) // the pod's sidecar may report more
			s.sidecar(1, 0, at(23), nil)
			s.o.Pods[1].Status.Phase = corev1.PodRunning // the phase while a container runs
			s.o.Now = at(23)
			s.next(Stop, v1alpha1.ConditionFailed)
			if f := s.job.Status.FirstFailure; f.Reason != string(podlife.RankExited) || f.Pod != "cg-0-1-x" {
				t.Errorf("%+v", f)
			}
		})
	}
}
