package verdict

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// Waits is what the ranks of a job wait for, according to their sidecars.
type Waits struct {
	Stuck bool     // every rank waits: a suspected deadlock
	Lines []string // as returned by why.Explain

	Disagree []string // what the ranks disagree about (why.Disagreements)
}

// waitsMax bounds the part of a message that the lines take. The first lines name the problem.
const waitsMax = 1500

// text joins the lines to a text of bounded length: a job has many ranks, and a sidecar
// may report any text.
func (w *Waits) text() string {
	if w == nil || len(w.Lines) == 0 {
		return ""
	}
	return limited("; "+strings.Join(w.Lines, "; "), waitsMax)
}

// disagreement returns what the ranks disagree about, in a bounded text.
func (w *Waits) disagreement() string { return limited(strings.Join(w.Disagree, "; "), waitsMax) }

// overdue returns the message of a job that has used up its time.
func (o *Observation) overdue() string {
	text := fmt.Sprintf("not finished within %d s", *o.Job.Spec.RunPolicy.ActiveDeadlineSeconds)
	if c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionPending); c != nil && c.Status == metav1.ConditionTrue && (o.Batch != nil || len(o.Pods) > 0) {
		reason, message := o.waiting()
		text += fmt.Sprintf(": %s: %s", reason, message)
	}
	return text + o.Waits.text()
}

// Overdue reports whether a plan ends the job because of its deadline. In that case the
// ranks are asked what they wait for.
func Overdue(p *Plan) bool {
	f := p.Status.FirstFailure
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionFailed) && f != nil && f.Reason == v1alpha1.ReasonDeadlineExceeded
}

// Suspects returns how long all ranks of a job must have waited for a suspected
// deadlock (0: deadlocks are not looked for), and the minimum time for which all of
// them have run (negative: they do not all run).
func Suspects(o *Observation) (after, age time.Duration) {
	after = o.Job.Spec.RunPolicy.DeadlockAfter()
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if c == nil || c.Status != metav1.ConditionTrue {
		return after, -1
	}
	return after, max(o.Now.Sub(c.LastTransitionTime.Time), 0)
}

// reasonDisagree is the reason of a running job whose ranks disagree, and of a job that
// has failed for that.
const reasonDisagree = string(podlife.RanksDisagree)

// Disagrees reports whether the status already says that the ranks disagree. What the
// ranks have started does not change, so this is not withdrawn.
func Disagrees(o *Observation) bool {
	c := o.runningCondition()
	return c != nil && c.Reason == reasonDisagree
}

// running returns the reason and the message of a running job.
func (o *Observation) running() (reason, message string) {
	was, looked := o.runningCondition(), o.Job.Spec.RunPolicy.DeadlockAfter() > 0
	switch {
	case looked && Disagrees(o):
		return was.Reason, was.Message
	case o.Waits != nil && len(o.Waits.Disagree) > 0:
		return reasonDisagree, o.Waits.disagreement() + "; who waits in it may do so for ever"
	case o.Waits != nil && o.Waits.Stuck && was == nil:
		return v1alpha1.ReasonSuspectedDeadlock, why.Suspicion(o.Job.Spec.RunPolicy.DeadlockAfter()) + o.Waits.text()
	case looked && was != nil && (o.Waits == nil || o.Waits.Stuck):
		return was.Reason, was.Message // a longer wait is not reported again
	}
	return reasonStarted, fmt.Sprintf("all %d ranks have been started", o.Job.Spec.Ranks) + o.looping() + o.starved() + o.unqueued() + o.unruly()
}

// unqueued warns of a job that names a queue in a cluster without Kueue. The job runs
// at once, and no quota applies to it.
func (o *Observation) unqueued() string {
	if !o.NoQueue || external(o.Job) {
		return ""
	}
	return "; " + TextNoQueue
}

// TextNoQueue is the message about a job that names a queue in a cluster without Kueue.
const TextNoQueue = "the label " + desired.LabelQueue + " names a queue, and this cluster has no Kueue, so that no queue holds the job: have the administrator install Kueue, or take the label off"

// starved warns of an application that requests no CPU: if its sidecar does, the
// application has the smallest share on a busy node.
func (o *Observation) starved() string {
	for _, p := range o.Pods {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			if c.Name == o.ApplicationName(p) && c.Resources.Requests.Cpu().IsZero() && p.Spec.Resources == nil {
				return fmt.Sprintf("; container %s requests no CPU and gets the smallest share of the CPU, after its sidecar: set its resources.requests.cpu", c.Name)
			}
		}
	}
	return ""
}

// runningCondition returns the job's Running condition if it reports a disagreement or a suspected
// deadlock.
func (o *Observation) runningCondition() *metav1.Condition {
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonSuspectedDeadlock && c.Reason != reasonDisagree {
		return nil
	}
	return c
}

// deadlocked returns the failure of a job whose suspected deadlock counts as a failure.
// A disagreement counts too, because computing does not resolve it.
func (o *Observation) deadlocked() *v1alpha1.Failure {
	after := o.Job.Spec.RunPolicy.DeadlockAfter()
	if o.Waits == nil || after <= 0 || o.Job.Spec.RunPolicy.DeadlockAction != v1alpha1.DeadlockFail {
		return nil
	}
	number := AttemptOf(o.Job)
	at := metav1.NewTime(o.Now)
	f := &v1alpha1.Failure{Attempt: &number, Time: &at}
	switch {
	case len(o.Waits.Disagree) > 0:
		f.Reason, f.Message = reasonDisagree, o.Waits.disagreement()
	case o.Waits.Stuck:
		f.Reason, f.Message = v1alpha1.ReasonSuspectedDeadlock, why.Suspicion(after)+o.Waits.text()
	default:
		return nil
	}
	return f
}
