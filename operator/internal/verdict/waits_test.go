package verdict

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

const eachOther = "ranks 0 and 1 wait for each other: 0 in recv from 1 tag 3, 1 in recv from 0 tag 3"

// TestDeadlockIsTold: a running job of which every rank waits says so, keeps to its
// words while nobody asks and while it lasts, and takes them back.
func TestDeadlockIsTold(t *testing.T) {
	s := begun(t)
	const told = "suspected deadlock: every rank has waited for 5m0s or longer, and nothing is under way; " + eachOther
	for i, x := range []struct {
		waits           *Waits
		reason, message string
	}{
		{nil, reasonStarted, "all 4 ranks have been started"},
		{&Waits{Stuck: true, Lines: []string{eachOther}}, v1alpha1.ReasonSuspectedDeadlock, told},
		{nil, v1alpha1.ReasonSuspectedDeadlock, told},
		{&Waits{Stuck: true, Lines: []string{"other words"}}, v1alpha1.ReasonSuspectedDeadlock, told},
		{new(Waits), reasonStarted, "all 4 ranks have been started"},
	} {
		s.o.Waits = x.waits
		s.next(Apply, v1alpha1.ConditionRunning)
		if c := condition(s.job, v1alpha1.ConditionRunning); c.Reason != x.reason || c.Message != x.message {
			t.Errorf("look %d: %s: %s", i, c.Reason, c.Message)
		}
	}
}

// TestDeadlockFails: where the job asks for that, it is a failure as any other,
// with restarts and their rules.
func TestDeadlockFails(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.DeadlockAction = v1alpha1.DeadlockFail
	s.job.Spec.RunPolicy.RestartLimit = new(int32(1))
	s.o.Waits = &Waits{Stuck: true, Lines: []string{eachOther}} // some rank may compute
	s.next(Apply, v1alpha1.ConditionRunning)
	s.o.Waits = &Waits{Stuck: true, Blocked: true, Lines: []string{eachOther}}
	s.next(Wait, v1alpha1.ConditionRestarting)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonSuspectedDeadlock || f.Rank != nil || !strings.HasSuffix(f.Message, eachOther) {
		t.Errorf("%+v", f)
	}
	s = begun(t)
	s.job.Spec.RunPolicy.DeadlockAction = v1alpha1.DeadlockFail
	s.o.Waits = &Waits{Stuck: true, Blocked: true, Lines: []string{eachOther}}
	s.next(Stop, v1alpha1.ConditionFailed)
}

// TestDeadlineSaysWhatRanksWaitFor, in a message that the API server takes.
func TestDeadlineSaysWhatRanksWaitFor(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(60))
	s.o.Now = at(61)
	if p := Next(&s.o); !Overdue(&p) || p.Status.FirstFailure.Message != "not finished within 60 s" {
		t.Errorf("without an answer: %+v", p.Status.FirstFailure)
	}
	s.o.Waits = &Waits{Lines: append([]string{eachOther}, strings.Split(strings.Repeat("rank 7 waits 4 s: barrier\n", 10_000), "\n")...)}
	s.next(Stop, v1alpha1.ConditionFailed)
	f := s.job.Status.FirstFailure
	if f.Reason != v1alpha1.ReasonDeadlineExceeded || !strings.HasPrefix(f.Message, "not finished within 60 s; "+eachOther+"; rank 7 waits 4 s: barrier; ") || len(f.Message) > messageMax {
		t.Errorf("%d bytes: %.300s", len(f.Message), f.Message)
	}
}

// TestSuspects: ranks are asked when all have run for long enough, and nobody has
// turned it off.
func TestSuspects(t *testing.T) {
	s := begun(t)
	for _, x := range []struct {
		seconds float64
		after   *int32
		want    bool
	}{{299, nil, false}, {301, nil, true}, {11, new(int32(10)), true}, {301, new(int32(0)), false}} {
		s.o.Now, s.job.Spec.RunPolicy.DeadlockAfterSeconds = at(x.seconds), x.after
		if _, got := Suspects(&s.o); got != x.want {
			t.Errorf("after %v s: %v", x.seconds, got)
		}
	}
	s = newStory(t)
	s.o.Now = at(1000)
	if _, got := Suspects(&s.o); got {
		t.Error("a job that has not begun is asked")
	}
}

// TestNoCPU: a job whose application requests no CPU is warned.
func TestNoCPU(t *testing.T) {
	for cpu, want := range map[string]string{
		"":     "all 4 ranks have been started; container solver requests no CPU and gets the smallest share beside its sidecar: set its resources.requests.cpu",
		"500m": "all 4 ranks have been started",
	} {
		s := begun(t)
		for _, p := range s.o.Pods {
			p.Spec.Containers = []corev1.Container{{Name: "solver"}}
			if cpu != "" {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			}
		}
		s.next(Apply, v1alpha1.ConditionRunning)
		if c := condition(s.job, v1alpha1.ConditionRunning); c.Message != want {
			t.Errorf("%q: %s", cpu, c.Message)
		}
	}
}
