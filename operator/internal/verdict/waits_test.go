package verdict

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

const eachOther = "ranks 0 and 1 wait for each other: 0 in recv from 1 tag 3, 1 in recv from 0 tag 3"

// TestDeadlockIsTold: the status of a running job whose ranks all wait reports a
// suspected deadlock. It stays unchanged while the ranks are not asked and while the
// deadlock lasts, and is withdrawn when it ends.
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

// TestDeadlockFails: if the job asks for it, a suspected deadlock is a failure like any
// other, with restarts and their rules.
func TestDeadlockFails(t *testing.T) {
	s := begun(t)
	s.job.Spec.RunPolicy.DeadlockAction = v1alpha1.DeadlockFail
	s.job.Spec.RunPolicy.RestartLimit = new(int32(1))
	s.o.Waits = new(Waits) // a rank may compute
	s.next(Apply, v1alpha1.ConditionRunning)
	s.o.Waits = &Waits{Stuck: true, Lines: []string{eachOther}}
	s.next(Wait, v1alpha1.ConditionRestarting)
	if f := s.job.Status.FirstFailure; f.Reason != v1alpha1.ReasonSuspectedDeadlock || f.Rank != nil || !strings.HasSuffix(f.Message, eachOther) {
		t.Errorf("%+v", f)
	}
	s = begun(t)
	s.job.Spec.RunPolicy.DeadlockAction = v1alpha1.DeadlockFail
	s.o.Waits = &Waits{Stuck: true, Lines: []string{eachOther}}
	s.next(Stop, v1alpha1.ConditionFailed)
}

// TestDeadlineSaysWhatRanksWaitFor: the API server accepts the message.
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

// TestSuspects: ranks are asked if all of them run, depending on how long they have
// run, and unless the job turns it off.
func TestSuspects(t *testing.T) {
	s := begun(t)
	for _, x := range []struct {
		seconds float64
		given   *int32
		after   time.Duration
		age     time.Duration
	}{{299, nil, 300 * time.Second, 299 * time.Second}, {11, new(int32(10)), 10 * time.Second, 11 * time.Second}, {301, new(int32(0)), 0, 301 * time.Second}, {-5, nil, 300 * time.Second, 0}} {
		s.o.Now, s.job.Spec.RunPolicy.DeadlockAfterSeconds = at(x.seconds), x.given
		if after, age := Suspects(&s.o); after != x.after || age != x.age {
			t.Errorf("after %v s: %v, %v", x.seconds, after, age)
		}
	}
	s = newStory(t)
	s.o.Now = at(1000)
	if _, age := Suspects(&s.o); age >= 0 {
		t.Error("a job that has not begun is asked")
	}
}

// TestDisagreementIsTold: the status of a running job whose ranks disagree reports it
// and keeps it, also if a deadlock was reported before or the disagreement is not found
// again. If a deadlock is to be a failure, a disagreement is one, even if ranks may
// compute.
func TestDisagreementIsTold(t *testing.T) {
	const minds = "ranks disagree about a collective: rank 0 is in gather of root 0, rank 1 is in gather of root 1"
	s := begun(t)
	for i, x := range []struct {
		waits  *Waits
		reason string
	}{
		{&Waits{Stuck: true, Lines: []string{eachOther}}, v1alpha1.ReasonSuspectedDeadlock},
		{&Waits{Disagree: []string{minds}}, reasonDisagree},
		{nil, reasonDisagree},
		{new(Waits), reasonDisagree},
		{&Waits{Stuck: true, Lines: []string{eachOther}}, reasonDisagree},
	} {
		s.o.Waits = x.waits
		s.next(Apply, v1alpha1.ConditionRunning)
		c := condition(s.job, v1alpha1.ConditionRunning)
		if c.Reason != x.reason || i > 0 && c.Message != minds+"; who waits in it may do so for ever" {
			t.Errorf("look %d: %s: %s", i, c.Reason, c.Message)
		}
	}
	s.job.Spec.RunPolicy.DeadlockAfterSeconds = new(int32(0)) // the check is turned off
	s.next(Apply, v1alpha1.ConditionRunning)
	if c := condition(s.job, v1alpha1.ConditionRunning); c.Reason != reasonStarted {
		t.Errorf("turned off: %s", c.Reason)
	}

	s = begun(t)
	s.job.Spec.RunPolicy.DeadlockAction = v1alpha1.DeadlockFail
	s.o.Waits = &Waits{Disagree: []string{minds}}
	s.next(Stop, v1alpha1.ConditionFailed)
	if f := s.job.Status.FirstFailure; f.Reason != reasonDisagree || f.Message != minds {
		t.Errorf("%+v", f)
	}
}

// TestNoCPU: the status of a job whose application requests no CPU has a warning.
func TestNoCPU(t *testing.T) {
	for cpu, want := range map[string]string{
		"":     "all 4 ranks have been started; container solver requests no CPU and gets the smallest share of the CPU, after its sidecar: set its resources.requests.cpu",
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
