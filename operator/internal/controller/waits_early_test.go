package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// roots answers like sidecars with 4 ranks each that have been in a gather for a while.
type roots struct {
	second  int     // rank that also acts as the root, like rank 0; -1: none
	seconds float64 // wait of these two; the other ranks have continued
	silent  string
	behind  bool // the pods other than the first are in the previous program
	asked   atomic.Int64
}

func (r *roots) WaitsOf(_ context.Context, p *corev1.Pod, _ int) (ranks []why.Rank, err error) {
	r.asked.Add(1)
	if p.Name == r.silent {
		return nil, errors.New("no route")
	}
	var pod int
	if _, err := fmt.Sscan(p.Name, &pod); err != nil {
		return nil, err
	}
	for n := 4 * pod; n < 4*pod+4; n++ {
		x := why.Rank{Rank: n, Past: []why.Begun{{Number: 3, Name: "gather of root 0"}}}
		if n == r.second {
			x.Past[0].Name = "gather of root " + fmt.Sprint(n)
		}
		if n == 0 || n == r.second {
			x.Waits = []why.Wait{{Kind: why.Collective, Name: x.Past[0].Name, Number: 3, Peer: why.Any, Seconds: r.seconds}}
		}
		if x.Generation = 2; r.behind && pod > 0 {
			x.Generation, x.Past[0].Name = 1, "scan"
		}
		ranks = append(ranks, x)
	}
	return ranks, nil
}

// gathering returns a job of many pods that has run for the given time.
func gathering(pods int, r *roots, age time.Duration) (*Reconciler, *verdict.Observation) {
	c, _, o := hanging(pods)
	c.Waiters = r
	o.Job.Status.Conditions[0].LastTransitionTime = metav1.NewTime(o.Now.Add(-age))
	return c, o
}

// follow checks a job whenever it is due, until a disagreement is reported or it has
// run for until. It returns the job's age at that time and the number of checks.
func follow(t *testing.T, r *Reconciler, o *verdict.Observation, until time.Duration) (age time.Duration, looks int) {
	t.Helper()
	for looks = 1; ; looks++ {
		o.Waits = nil
		next := r.watchWaits(t.Context(), o)
		if _, age = verdict.Suspects(o); age >= until || o.Waits != nil && o.Waits.Disagree != nil {
			return age, looks
		}
		if next <= 0 || next > lookMax {
			t.Fatalf("the next look is in %v", next)
		}
		o.Now = o.Now.Add(next)
	}
}

// TestDisagreementIsFoundEarly: two roots are reported long before a deadlock is
// suspected, after two checks with the same result, even if the first pod waits for
// nothing or another pod does not answer.
func TestDisagreementIsFoundEarly(t *testing.T) {
	for name, w := range map[string]*roots{
		"both":         {second: 5, seconds: 6},
		"one is far":   {second: 11, seconds: 6, silent: "1"},
		"in later pod": {second: 11, seconds: 1000, silent: "0"},
	} {
		r, o := gathering(3, w, 0)
		age, looks := follow(t, r, o, time.Minute)
		if o.Waits == nil || len(o.Waits.Disagree) != 1 || age > 25*time.Second {
			t.Errorf("%s: after %v, %d looks: %+v", name, age, looks, o.Waits)
		} else if line := o.Waits.Disagree[0]; !strings.Contains(line, fmt.Sprintf("rank %d is in gather of root %[1]d", w.second)) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// TestProgramsOfAScriptAgree: ranks of two pods that are in two consecutive programs of
// a script do not disagree.
func TestProgramsOfAScriptAgree(t *testing.T) {
	r, o := gathering(3, &roots{second: -1, seconds: 1000, behind: true}, time.Minute)
	if follow(t, r, o, 10*time.Minute); o.Waits != nil && o.Waits.Disagree != nil {
		t.Errorf("%q", o.Waits.Disagree)
	}
}

// TestWhoWaitsLittleIsAskedLittle: a job whose ranks do not wait in a collective costs
// about ten requests to one pod each in its first five minutes, and nothing is
// reported. A job whose ranks are far apart is asked as a whole, and then not again for
// a time that depends on how long that took.
func TestWhoWaitsLittleIsAskedLittle(t *testing.T) {
	w := &roots{second: 5, seconds: 4.9}
	r, o := gathering(100, w, 0)
	if age, looks := follow(t, r, o, 5*time.Minute); age < 5*time.Minute || w.asked.Load() > 12 {
		t.Errorf("%d questions in %d looks of %v", w.asked.Load(), looks, age)
	}
	w = &roots{second: -1, seconds: 60}
	r, o = gathering(100, w, time.Minute)
	if r.watchWaits(t.Context(), o); w.asked.Load() != 100 || o.Waits == nil || o.Waits.Disagree != nil || o.Waits.Stuck {
		t.Errorf("ranks that are far apart: %d questions, %+v", w.asked.Load(), o.Waits)
	}
	k := r.watch.jobs[client.ObjectKeyFromObject(o.Job)]
	k.next, k.whole = o.Now, o.Now.Add(time.Nanosecond)
	if r.watchWaits(t.Context(), o); w.asked.Load() != 101 {
		t.Errorf("%d questions", w.asked.Load())
	}
}

// TestDisagreementNeedsTwoLooks: a disagreement needs two checks of one attempt. It is
// not looked for if the job turns the check off, or if it has been reported.
func TestDisagreementNeedsTwoLooks(t *testing.T) {
	w := &roots{second: 5, seconds: 6}
	r, o := gathering(3, w, 10*time.Second)
	next := r.watchWaits(t.Context(), o)
	if o.Waits == nil || o.Waits.Disagree != nil || next != earlyAgain {
		t.Errorf("the first look: %+v, the next in %v", o.Waits, next)
	}
	r.watch.jobs[client.ObjectKeyFromObject(o.Job)].found = 7 // of another attempt
	o.Now = o.Now.Add(earlyAgain)
	if r.watchWaits(t.Context(), o); o.Waits.Disagree != nil {
		t.Errorf("by another attempt's look: %+v", o.Waits)
	}
	o.Now = o.Now.Add(earlyAgain)
	if r.watchWaits(t.Context(), o); o.Waits.Disagree == nil {
		t.Errorf("the second look: %+v", o.Waits)
	}
	o.Job.Status.Conditions[0].Reason = "RanksDisagree"
	asked := w.asked.Load()
	o.Now = o.Now.Add(earlyAgain)
	if next := r.watchWaits(t.Context(), o); w.asked.Load() != asked+1 || next < earlyAfter {
		t.Errorf("told, and %d more questions, the next in %v", w.asked.Load()-asked, next)
	}
	r, o = gathering(3, w, time.Hour)
	o.Job.Spec.RunPolicy.DeadlockAfterSeconds = new(int32)
	asked = w.asked.Load()
	if next := r.watchWaits(t.Context(), o); next != 0 || w.asked.Load() != asked {
		t.Errorf("turned off: %d questions, the next in %v", w.asked.Load()-asked, next)
	}
}

// TestDisagreementIsOfRanksThatRun: what was found before a suspension is about ranks
// that no longer exist, and does not count when the job runs again.
func TestDisagreementIsOfRanksThatRun(t *testing.T) {
	r, o := gathering(3, &roots{second: 5, seconds: 6}, 10*time.Second)
	r.watchWaits(t.Context(), o)
	running := &o.Job.Status.Conditions[0]
	running.Status = metav1.ConditionFalse
	r.watchWaits(t.Context(), o)
	o.Now = o.Now.Add(time.Minute)
	running.Status, running.LastTransitionTime = metav1.ConditionTrue, metav1.NewTime(o.Now.Add(-10*time.Second))
	if r.watchWaits(t.Context(), o); o.Waits == nil || o.Waits.Disagree != nil {
		t.Errorf("the first look at ranks that have begun anew: %+v", o.Waits)
	}
	o.Now = o.Now.Add(earlyAgain)
	if r.watchWaits(t.Context(), o); o.Waits.Disagree == nil {
		t.Errorf("the second one: %+v", o.Waits)
	}
}

// TestLooksDoNotWaitForAnotherClock: a replica whose clock is an hour ahead has written
// since when a job runs. Checks follow the time at which this replica first saw the job
// run.
func TestLooksDoNotWaitForAnotherClock(t *testing.T) {
	r, o := gathering(3, &roots{second: 5, seconds: 6}, -time.Hour)
	begun := o.Now
	for o.Waits == nil || o.Waits.Disagree == nil {
		o.Waits = nil
		next := r.watchWaits(t.Context(), o)
		if o.Now = o.Now.Add(next); next <= 0 || o.Now.Sub(begun) > time.Minute {
			t.Fatalf("after %v, the next look in %v: %+v", o.Now.Sub(begun), next, o.Waits)
		}
	}
}
