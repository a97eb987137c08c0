package verdict

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// podsPatience is how long the Job controller is given to make the pods where no event of
// it says that they are refused.
const podsPatience = 30 * time.Second

// absent is how many pods are still to be made, and for how long that is
// nothing to tell of.
func (o *Observation) absent() (n int, left time.Duration) {
	if o.Batch == nil {
		return 0, 0
	}
	since := o.letGo()
	if t := o.batchStart(); t != nil {
		since = t.Time
	}
	for _, s := range o.podStates() {
		if s == podAbsent {
			n++
		}
	}
	patience := podsPatience
	if o.Told.Refusal != "" {
		patience = unclearAfter
	}
	return n, patience - max(o.Now.Sub(since), o.missing()) // the first may be of a clock that is ahead
}

// Absent is the number of a pod that is missing and could be there: the first one; -1:
// none.
func Absent(o *Observation) int32 {
	o.recall()
	o.arrange()
	if !external(o.Job) && (o.Batch == nil || o.batchHeld()) {
		return -1
	}
	return int32(slices.Index(o.podStates(), podAbsent))
}

// missing is for how long the first pod that is missing has been seen to be.
func (o *Observation) missing() time.Duration {
	if o.Missing.IsZero() {
		return 0
	}
	return o.Now.Sub(o.Missing)
}

// letGo is since when the Job controller may make pods: since the Job was made, or
// since it was not suspended any more.
func (o *Observation) letGo() time.Time {
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionSuspended)
	switch {
	case c == nil:
		return o.Batch.CreationTimestamp.Time
	case c.Status == metav1.ConditionTrue: // until now
		return o.Now
	}
	return c.LastTransitionTime.Time
}
