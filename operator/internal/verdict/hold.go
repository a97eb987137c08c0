package verdict

import (
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

// Bounds of the time between two tries.
const (
	holdMin = 30 * time.Second
	holdMax = 10 * time.Minute
)

// Prepared reports whether what the pods of another controller need has been
// made: a job whose status tells of an obstacle, or nothing, has not.
func Prepared(j *v1alpha1.MPIJob) bool {
	c := meta.FindStatusCondition(j.Status.Conditions, v1alpha1.ConditionPending)
	if c == nil {
		return len(j.Status.Conditions) > 0
	}
	return c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonProfileMissing && c.Reason != v1alpha1.ReasonNameConflict && c.Reason != v1alpha1.ReasonInvalid && c.Reason != v1alpha1.ReasonAPIError
}
