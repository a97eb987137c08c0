package verdict

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// forgetful returns a story with running pods of another controller.
func forgetful(t *testing.T) *story {
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.pods(0)
	s.next(Apply, v1alpha1.ConditionRunning)
	return s
}

// goes deletes a pod, after which only the status records its end: another operator may
// have seen it.
func (s *story) goes(pod string) {
	s.o.Pods = slices.DeleteFunc(s.o.Pods, func(p *corev1.Pod) bool { return p.Name == pod })
}

// TestEndsOutliveTheOperator: pods of another controller that end and are deleted one
// by one count as ended because of the status alone, with their failures.
func TestEndsOutliveTheOperator(t *testing.T) {
	s := forgetful(t)
	s.exit(0, 0, at(10))
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.o.Now = at(11)
	s.next(Apply, v1alpha1.ConditionRunning)
	if e := s.job.Status.EndedPods; e == nil || e.Succeeded != "0" || len(e.Told) != 0 {
		t.Fatalf("the status keeps %+v", e)
	}
	s.goes("cg-0-0-x")
	s.o.Now = at(100)
	s.next(Apply, v1alpha1.ConditionRunning)
	s.exit(0, 0, at(110)) // the other pod
	s.o.Pods[0].Status.Phase = corev1.PodSucceeded
	s.o.Now = at(111)
	s.next(Stop, v1alpha1.ConditionComplete)
	if s.job.Status.EndedPods != nil || *s.job.Status.Ranks.Succeeded != 4 {
		t.Errorf("status of the job that is over: %+v", s.job.Status)
	}
}

// TestFailuresOutliveTheOperator: the status records how a pod failed, that it was
// deleted, or that it succeeded while its sidecar reports a failed rank.
func TestFailuresOutliveTheOperator(t *testing.T) {
	for what, c := range map[string]struct {
		end    func(s *story)
		reason string
		rank   int32
	}{
		"a rank's exit": {func(s *story) {
			s.exit(1, 3, at(10), podlife.Failure{Rank: 3, Code: 3, Reason: podlife.RankExited, Text: "exited with code 3", Time: at(10)})
			s.sidecar(1, 0, at(10), nil)
		}, "RankExited", 3},
		"memory": {func(s *story) {
			s.exit(1, 137, at(10))
			s.o.Pods[1].Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
			s.sidecar(1, 0, at(10), nil)
		}, v1alpha1.ReasonOutOfMemory, 2},
		"an eviction": {func(s *story) {
			s.exit(1, 143, at(10), podlife.Failure{Rank: 2, Code: 143, Reason: podlife.Terminated, Time: at(10)})
			s.sidecar(1, 0, at(10), nil)
			s.o.Pods[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "drained"}}
		}, v1alpha1.ReasonPodLost, 2},
		"a rank without Close": {func(s *story) {
			s.exit(1, 0, at(10))
			s.sidecar(1, 0, at(10), &podlife.Message{Failures: []podlife.Failure{{Rank: 3, Code: 1, Reason: podlife.RankVanished, Text: podlife.TextVanished, Time: at(10)}}})
			s.o.Pods[1].Status.Phase = corev1.PodSucceeded
		}, "RankVanished", 3},
	} {
		t.Run(what, func(t *testing.T) {
			s := forgetful(t)
			c.end(s)
			o := s.o
			o.Now, o.Noticed = at(10.5), at(10.2)
			p := Next(&o) // the operator that saw it: the failure is not settled yet
			if Finished(&p.Status) {
				t.Fatalf("it is over at once: %+v", p.Status)
			}
			s.job.Status = p.Status
			s.goes("cg-0-1-x")
			s.o.Now, s.o.Noticed = at(60), at(20)
			s.exit(0, 0, at(50)) // the first pod ends only now
			s.o.Pods[0].Status.Phase = corev1.PodSucceeded
			s.next(Stop, v1alpha1.ConditionFailed)
			if f := s.job.Status.FirstFailure; f.Reason != c.reason || deref(f.Rank) != c.rank || f.Pod != "cg-0-1-x" || f.Node != "node1" {
				t.Errorf("first failure %+v, rank %d", f, deref(f.Rank))
			}
		})
	}
}

// TestEndsAreBounded: whatever thousands of pods report, the status keeps a few ranges
// and the messages of four pods.
func TestEndsAreBounded(t *testing.T) {
	s := newStory(t)
	s.job.Spec.PodManagement = v1alpha1.PodsExternal
	s.job.Spec.Ranks, s.job.Spec.RanksPerPod = 4096, 1
	s.pods(0)
	like := s.o.Pods[0]
	s.o.Pods = nil
	for i := range int32(4096) {
		p := like.DeepCopy()
		p.Labels["batch.kubernetes.io/job-completion-index"] = written([]int32{i})
		p.Status.Phase = corev1.PodSucceeded
		code := int32(0)
		if i%2 == 1 {
			p.Status.Phase, code = corev1.PodFailed, 1
		}
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: strings.Repeat("é", 6000), Reason: strings.Repeat("x", 999), FinishedAt: metav1.NewTime(noon)}}
		s.o.Pods = append(s.o.Pods, p)
	}
	e := s.o.endedPods()
	if len(e.Told) != toldMax || len(e.Succeeded) > 16<<10 {
		t.Errorf("%d pods are told of, %d bytes of numbers", len(e.Told), len(e.Succeeded))
	}
	if got := intervals(e.Succeeded, 4096); len(got) != 2048 {
		t.Errorf("%d numbers are read again", len(got))
	}
	if m := e.Told[0].Application.Message; len(m) > wordsMax {
		t.Errorf("%d bytes of words", len(m))
	}
}

// FuzzIntervals: any text in a status gives numbers below the limit, each once and in
// order, and the output of written is read back.
func FuzzIntervals(f *testing.F) {
	for _, text := range []string{"", "0", "0-3,5", "3-1", "5,4", "-1", "0-2147483647", "1-2-3", ",,", "0-4095,7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 4096
		got := intervals(text, limit)
		for i, n := range got {
			if n < 0 || n >= limit || i > 0 && n <= got[i-1] {
				t.Fatalf("%q gives %v", text, got)
			}
		}
		if again := intervals(written(got), limit); !slices.Equal(again, got) {
			t.Fatalf("%v is written as %q and read as %v", got, written(got), again)
		}
	})
}
