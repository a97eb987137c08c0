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

// Waits are what the ranks of a job wait for, as their sidecars have said.
type Waits struct {
	Stuck bool     // every rank only waits: a suspected deadlock
	Lines []string // of why.Explain

	Disagree []string // what ranks disagree about (why.Disagreements)
}

// waitsMax bounds what a message has of them: the first lines say what is wrong.
const waitsMax = 1500

// text are the lines in one, of a bounded length: a job has many ranks, and what
// a sidecar says may be made up.
func (w *Waits) text() string {
	if w == nil || len(w.Lines) == 0 {
		return ""
	}
	return limited("; "+strings.Join(w.Lines, "; "), waitsMax)
}

// disagreement is what its ranks disagree about, in a bounded text.
func (w *Waits) disagreement() string { return limited(strings.Join(w.Disagree, "; "), waitsMax) }

// overdue is what is said of a job that has used up its time.
func (o *Observation) overdue() string {
	text := fmt.Sprintf("not finished within %d s", *o.Job.Spec.RunPolicy.ActiveDeadlineSeconds)
	if c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionPending); c != nil && c.Status == metav1.ConditionTrue && (o.Batch != nil || len(o.Pods) > 0) {
		reason, message := o.waiting()
		text += fmt.Sprintf(": %s: %s", reason, message)
	}
	return text + o.Waits.text()
}

// Overdue reports whether a plan ends the job for its time: then what its ranks
// wait for is worth a question.
func Overdue(p *Plan) bool {
	f := p.Status.FirstFailure
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionFailed) && f != nil && f.Reason == v1alpha1.ReasonDeadlineExceeded
}

// Suspects is how long all ranks of a job must have waited for a suspected deadlock,
// 0: nobody looks; and for how long all of them run, at least, below 0: they do not.
func Suspects(o *Observation) (after, age time.Duration) {
	after = o.Job.Spec.RunPolicy.DeadlockAfter()
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if c == nil || c.Status != metav1.ConditionTrue {
		return after, -1
	}
	return after, max(o.Now.Sub(c.LastTransitionTime.Time), 0)
}

// reasonDisagree is that of a running job whose ranks disagree, and of one that has
// failed by that.
const reasonDisagree = string(podlife.RanksDisagree)

// Disagrees reports that it was told of a job that its ranks disagree. What they have
// begun does not change any more, so that is not taken back.
func Disagrees(o *Observation) bool {
	c := o.told()
	return c != nil && c.Reason == reasonDisagree
}

// running is the reason and the message of a job that runs.
func (o *Observation) running() (reason, message string) {
	was, looked := o.told(), o.Job.Spec.RunPolicy.DeadlockAfter() > 0
	switch {
	case looked && Disagrees(o):
		return was.Reason, was.Message
	case o.Waits != nil && len(o.Waits.Disagree) > 0:
		return reasonDisagree, o.Waits.disagreement() + "; who waits in it may do so for ever"
	case o.Waits != nil && o.Waits.Stuck && was == nil:
		return v1alpha1.ReasonSuspectedDeadlock, why.Suspicion(o.Job.Spec.RunPolicy.DeadlockAfter()) + o.Waits.text()
	case looked && was != nil && (o.Waits == nil || o.Waits.Stuck):
		return was.Reason, was.Message // how long they wait by now is no news
	}
	return reasonStarted, fmt.Sprintf("all %d ranks have been started", o.Job.Spec.Ranks) + o.looping() + o.starved() + o.unqueued() + o.unruly()
}

// unqueued warns of a job that names a queue in a cluster without Kueue: it runs at once,
// and takes part in no quota.
func (o *Observation) unqueued() string {
	if !o.NoQueue || external(o.Job) {
		return ""
	}
	return "; " + TextNoQueue
}

// TextNoQueue is what is said of a job that names a queue where there are none.
const TextNoQueue = "the label " + desired.LabelQueue + " names a queue, and this cluster has no Kueue, so that no queue holds the job: have the administrator install Kueue, or take the label off"

// starved warns of an application that requests no CPU: beside a sidecar that does
// it has the smallest share where the node is busy.
func (o *Observation) starved() string {
	for _, p := range o.Pods {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			if c.Name == o.ApplicationName(p) && c.Resources.Requests.Cpu().IsZero() && p.Spec.Resources == nil {
				return fmt.Sprintf("; container %s requests no CPU and gets the smallest share beside its sidecar: set its resources.requests.cpu", c.Name)
			}
		}
	}
	return ""
}

// told is the job's condition if it says that ranks disagree or wait for ever.
func (o *Observation) told() *metav1.Condition {
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonSuspectedDeadlock && c.Reason != reasonDisagree {
		return nil
	}
	return c
}

// deadlocked is the failure of a job whose suspected deadlock is to be one. Of ranks
// that disagree none comes to another's message by computing.
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
