package verdict

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Hold is a job whose objects cannot be made: a person has to mend it, and
// nobody tells when that is done. It is tried again, the more rarely the longer
// it lasts: many such jobs shall not take the operator's time from the others.
func Hold(o *Observation, p *Plan, reason, message string) {
	if p.Requeue = holdMin; o.Batch != nil {
		return // the job goes on; what was refused is a change
	}
	p.Status.JobName = "" // or its absence would be a failure
	o.state(p, v1alpha1.ConditionPending, reason, message)
	bound(&p.Status, o)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	p.Requeue = min(max(holdMin, o.Now.Sub(c.LastTransitionTime.Time)), holdMax)
}

// Soon has a job that is held looked at soon, since its obstacle goes away without a change
// of the job: what an earlier MPIJob of its name has left, or an object of its owner's
// that a person takes away. Who owns the obstacle may keep it: the time between two looks
// is an eighth of how long it lasts.
func Soon(o *Observation, p *Plan) {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	if o.Batch == nil && c != nil {
		p.Requeue = min(max(holdPassing, o.Now.Sub(c.LastTransitionTime.Time)/8), holdMax)
	}
}

// Unchanged is a job that goes on, but not as it asks by now: its Job cannot be
// changed. Its state says so, beside what else is to be said of it.
func Unchanged(o *Observation, p *Plan, cause string) {
	is := state(&p.Status)
	if is == nil {
		return
	}
	is.Reason, is.Message = v1alpha1.ReasonAPIError, is.Message+"; what the MPIJob asks of its Job cannot be done, and is tried again: "+cause
	bound(&p.Status, o)
}

// Unended is a job of which something cannot be ended, or removed for a restart: it is
// what it was, and says what it would be and why it is not. The cause names what it is.
func Unended(o *Observation, p *Plan, cause string) {
	was, is := state(&o.Job.Status), state(&p.Status)
	if is == nil {
		return
	}
	if was == nil { // who began it was killed before it could say so
		was = &metav1.Condition{Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue, ObservedGeneration: o.Job.Generation, LastTransitionTime: metav1.NewTime(o.Now)}
	}
	c := *was
	c.Reason, c.Message = v1alpha1.ReasonAPIError, is.Message+"; that is not so yet, and tried again: "+cause
	if was.Reason == c.Reason && is.Message == was.Message {
		c.Message = was.Message // it says so already
	}
	p.Status.Conditions = slices.Clone(o.Job.Status.Conditions)
	meta.SetStatusCondition(&p.Status.Conditions, c)
	p.Status.CompletionTime, p.Status.JobName = o.Job.Status.CompletionTime, o.Job.Status.JobName
	p.Status.Restarts, p.Status.Drains = o.Job.Status.Restarts, o.Job.Status.Drains
	bound(&p.Status, o)
}

// state is the condition that is True.
func state(s *v1alpha1.MPIJobStatus) *metav1.Condition {
	i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}

// Bounds of the time between two tries.
const (
	holdMin     = 30 * time.Second
	holdMax     = 10 * time.Minute
	holdPassing = 2 * time.Second // of an obstacle that goes away without a change of the job, at first
)

// Prepared reports whether what the pods of another controller need has been
// made: a job whose status tells of an obstacle, or nothing, has not.
func Prepared(j *v1alpha1.MPIJob) bool {
	c := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionPending)
	if c == nil {
		return len(j.Status.Conditions) > 0
	}
	return c.Status != metav1.ConditionTrue || !slices.Contains(unmade, c.Reason)
}

// Ran reports whether all ranks of a job have been started once.
func Ran(j *v1alpha1.MPIJob) bool {
	return meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionRunning) != nil
}

// unmade are the reasons of Pending of a job whose objects have not all been made.
var unmade = []string{v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalid, v1alpha1.ReasonAPIError}
