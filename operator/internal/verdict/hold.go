package verdict

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Hold adds an obstacle to the plan of a job whose objects cannot be made. The operator
// does not see when a user or an administrator resolves the obstacle, so the job is
// tried again, less often the longer the obstacle lasts: many such jobs must not take
// the operator's time from others.
func Hold(o *Observation, p *Plan, reason, message string) {
	if p.Requeue = holdMin; o.Batch != nil {
		return // the job continues; a change was refused
	}
	p.Status.JobName = "" // a job name without a Job would count as a failure
	o.state(p, v1alpha1.ConditionPending, reason, message)
	bound(&p.Status, o)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	p.Requeue = min(max(holdMin, o.Now.Sub(c.LastTransitionTime.Time)), holdMax)
}

// Soon shortens the time to the next try of a held job whose obstacle can end without a
// change of the job: objects of an earlier MPIJob of its name, or an object of another
// owner that a user deletes. The obstacle may stay for long, so the time between two
// tries is an eighth of the time that it has lasted.
func Soon(o *Observation, p *Plan) {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPending)
	if o.Batch == nil && c != nil {
		p.Requeue = min(max(holdPassing, o.Now.Sub(c.LastTransitionTime.Time)/8), holdMax)
	}
}

// Unchanged is for a job that continues although its Job cannot be changed as the MPIJob now
// asks. It adds the cause to the status; the message keeps its other content.
func Unchanged(o *Observation, p *Plan, cause string) {
	is := state(&p.Status)
	if is == nil {
		return
	}
	is.Reason, is.Message = v1alpha1.ReasonAPIError, is.Message+"; what the MPIJob asks of its Job cannot be done, and is tried again: "+cause
	bound(&p.Status, o)
}

// Unended is for a job one of whose objects cannot be ended, or removed for a restart. The job
// keeps its state, and the message has the intended state and the cause, which names the
// object.
func Unended(o *Observation, p *Plan, cause string) {
	was, is := state(&o.Job.Status), state(&p.Status)
	if is == nil {
		return
	}
	if was == nil { // the operator that started it was killed before it wrote the status
		was = &metav1.Condition{Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue, ObservedGeneration: o.Job.Generation, LastTransitionTime: metav1.NewTime(o.Now)}
	}
	c := *was
	c.Reason, c.Message = v1alpha1.ReasonAPIError, is.Message+"; that is not so yet, and tried again: "+cause
	if was.Reason == c.Reason && is.Message == was.Message {
		c.Message = was.Message // unchanged
	}
	p.Status.Conditions = slices.Clone(o.Job.Status.Conditions)
	meta.SetStatusCondition(&p.Status.Conditions, c)
	p.Status.CompletionTime, p.Status.JobName = o.Job.Status.CompletionTime, o.Job.Status.JobName
	p.Status.Restarts, p.Status.Drains = o.Job.Status.Restarts, o.Job.Status.Drains
	bound(&p.Status, o)
}

// state returns the condition that is True.
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
	holdPassing = 2 * time.Second // for an obstacle that can end without a change of the job, at first
)

// Prepared reports whether the objects that the pods of another controller need have
// been made. They have not if the job has no conditions or its status reports an
// obstacle.
func Prepared(j *v1alpha1.MPIJob) bool {
	c := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionPending)
	if c == nil {
		return len(j.Status.Conditions) > 0
	}
	return c.Status != metav1.ConditionTrue || !slices.Contains(unmade, c.Reason)
}

// Ran reports whether all ranks of a job have once been started.
func Ran(j *v1alpha1.MPIJob) bool {
	return meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionRunning) != nil
}

// unmade are the reasons of Pending of a job whose objects have not all been made.
var unmade = []string{v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalid, v1alpha1.ReasonAPIError}
