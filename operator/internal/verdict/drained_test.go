package verdict

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// taken are the ways in which a pod is taken away at a given time.
var taken = map[string]func(p *corev1.Pod, when time.Time){
	"deleted": func(p *corev1.Pod, when time.Time) {
		grace := int64(30)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: when.Add(30 * time.Second)}, &grace
	},
	"disrupted": func(p *corev1.Pod, when time.Time) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: metav1.NewTime(when),
		}}
	},
}

// TestDrained: the ranks of another pod write their checkpoint and end first, with an
// exit code of their own. The job starts again without spending a restart, and waits
// for the ranks that still write.
func TestDrained(t *testing.T) {
	for how, take := range taken {
		t.Run(how, func(t *testing.T) {
			s := begun(t)
			s.job.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
			s.job.Spec.RunPolicy.RestartRules = []v1alpha1.RestartRule{{Action: v1alpha1.ActionFail, ExitCodes: []int32{85}}, {Action: v1alpha1.ActionFail}}
			take(s.o.Pods[1], at(10))
			s.exit(0, 85, at(12), podlife.Failure{Rank: 0, Code: 85, Reason: podlife.RankExited, Time: at(12)})
			s.o.Now = at(13)
			s.next(Wait, v1alpha1.ConditionRestarting)
			f := s.job.Status.FirstFailure
			if f.Reason != v1alpha1.ReasonDrained || f.ExitCode != nil || f.Pod != "cg-0-1-x" || *f.Rank != 2 || *f.Attempt != 0 {
				t.Fatalf("%+v", f)
			}
			s.next(Remove, v1alpha1.ConditionRestarting)
			s.o.Batch, s.o.Now = nil, at(13).Add(removalPatience+20*time.Second)
			s.next(Wait, v1alpha1.ConditionRestarting) // the grace period of the pod has not ended
			s.o.Pods = nil
			s.next(Remove, v1alpha1.ConditionPending)
			if m := condition(s.job, v1alpha1.ConditionPending).Message; s.job.Status.FirstFailure != nil || !strings.Contains(m, "start 1 after a drain, which spends no restart: rank 2: ") || !strings.Contains(m, "(pod cg-0-1-x, node node1)") {
				t.Errorf("a job that has not failed: %q, first failure %+v", m, s.job.Status.FirstFailure)
			}
			if st := &s.job.Status; AttemptOf(s.job) != 1 || *st.Drains != 1 || st.Restarts != nil {
				t.Fatalf("attempt %d, status %+v", AttemptOf(s.job), st)
			}
			s.next(Apply, v1alpha1.ConditionPending)
			if s.job.Status.JobName != "cg-1" {
				t.Errorf("job %s", s.job.Status.JobName)
			}
		})
	}
}

// TestNotDrained: pods that are taken away after a failure did not cause it, and
// neither did ranks that were terminated for another reason. Both spend a restart.
func TestNotDrained(t *testing.T) {
	for how, take := range taken {
		s := begun(t)
		s.job.Spec.RunPolicy.RestartLimit = new(int32(1))
		s.exit(0, 3, at(10), podlife.Failure{Rank: 1, Code: 3, Reason: podlife.RankExited, Time: at(10)})
		take(s.o.Pods[1], at(12))
		s.o.Now = at(20)
		s.next(Wait, v1alpha1.ConditionRestarting)
		if f := s.job.Status.FirstFailure; f.Reason != string(podlife.RankExited) {
			t.Errorf("%s: %+v", how, f)
		}
	}
	s := begun(t)
	s.job.Spec.RunPolicy.RestartLimit = new(int32(1))
	s.exit(0, 143, at(10), podlife.Failure{Rank: 0, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated, Time: at(10)})
	s.o.Now = at(20)
	s.next(Wait, v1alpha1.ConditionRestarting)
	if f := s.job.Status.FirstFailure; f.Reason != string(podlife.Terminated) {
		t.Errorf("%+v", f)
	}
	s.next(Remove, v1alpha1.ConditionRestarting)
	s.o.Batch, s.o.Pods, s.o.Now = nil, nil, at(40)
	s.next(Remove, v1alpha1.ConditionPending)
	if st := &s.job.Status; st.Drains != nil || *st.Restarts != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestDrainsAndRules: a rule that names the reason applies, and drains do not spend
// restarts.
func TestDrainsAndRules(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.RestartRules = []v1alpha1.RestartRule{{Action: v1alpha1.ActionFail, Reasons: []string{v1alpha1.ReasonDrained}}}
	taken["deleted"](s.o.Pods[0], at(10))
	s.o.Now = at(13)
	s.next(Stop, v1alpha1.ConditionFailed)

	s = begun(t)
	s.job.Spec.RunPolicy.RestartLimit, s.job.Status.Drains = new(int32(1)), new(int32(3))
	s.o.Batch.Name, s.job.Status.JobName = "cg-3", "cg-3"
	s.exit(0, 3, at(10), podlife.Failure{Rank: 1, Code: 3, Reason: podlife.RankExited, Time: at(10)})
	s.o.Now = at(20)
	s.next(Wait, v1alpha1.ConditionRestarting)
}

// TestOutOfStorage: an eviction because of the pod's own limits is a failure, and one
// because of the node is a drain.
func TestOutOfStorage(t *testing.T) {
	for text, reason := range map[string]string{
		`Usage of EmptyDir volume "e" exceeds the limit "10Mi". `:                         v1alpha1.ReasonOutOfStorage,
		"Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ":  v1alpha1.ReasonOutOfStorage,
		`Container app exceeded its local ephemeral storage limit "10Mi". `:               v1alpha1.ReasonOutOfStorage,
		"The node was low on resource: ephemeral-storage. Threshold quantity: 1, has 0. ": v1alpha1.ReasonDrained,
	} {
		s := begun(t)
		s.exit(1, 143, at(10), podlife.Failure{Rank: 2, Code: 143, Signal: "SIGTERM", Reason: podlife.Terminated, Time: at(10)})
		p := s.o.Pods[1]
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", text
		s.o.Now = at(20)
		if reason == v1alpha1.ReasonDrained {
			s.next(Wait, v1alpha1.ConditionRestarting)
		} else {
			s.next(Stop, v1alpha1.ConditionFailed)
		}
		if f := s.job.Status.FirstFailure; f == nil || f.Reason != reason || !strings.Contains(f.Message, text) {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestRejectedForGood: the reason names a node that can never run the pod.
func TestRejectedForGood(t *testing.T) {
	s := begun(t)
	p := s.o.Pods[1]
	p.CreationTimestamp, s.o.Noticed = metav1.NewTime(at(5)), at(10)
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SysctlForbidden", Message: `Pod was rejected: forbidden sysctl: "kernel.shmmax" not allowlisted`}
	s.o.Now = at(20)
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f == nil || f.Reason != v1alpha1.ReasonPodRejected || !strings.Contains(f.Message, "SysctlForbidden") {
		t.Errorf("%+v", f)
	}
}

// TestNodeThatIsNotThere: pods that the template binds to a node that does not exist
// fail the job, even if no kubelet started them. Pods that a scheduler placed on such a
// node are drained.
func TestNodeThatIsNotThere(t *testing.T) {
	for _, began := range []bool{true, false} {
		for nodeName, reason := range map[string]string{"node1": v1alpha1.ReasonPodLost, "": v1alpha1.ReasonDrained} {
			s := begun(t)
			s.job.Spec.Template.Spec.NodeName = nodeName
			p := s.o.Pods[1]
			if !began {
				p.Status.ContainerStatuses, p.Status.InitContainerStatuses = nil, nil
			}
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists", LastTransitionTime: metav1.NewTime(at(10)),
			}}
			s.o.Noticed, s.o.Now = at(10), at(50)
			want, action := v1alpha1.ConditionRestarting, Wait
			if nodeName != "" {
				want, action = v1alpha1.ConditionFailed, Stop
			}
			s.next(action, want)
			if f := s.job.Status.FirstFailure; f.Reason != reason || strings.Contains(f.Message, "nodeName is node1") != (nodeName != "") {
				t.Errorf("begun %v, nodeName %q: %+v", began, nodeName, f)
			}
		}
	}
}
