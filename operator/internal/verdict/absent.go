package verdict

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// podsPatience is the time that the Job controller has to make the pods if no event
// reports a refusal.
const podsPatience = 30 * time.Second

// absent returns how many pods are not made yet, and the time until this is reported.
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
	return n, patience - max(o.Now.Sub(since), o.missing()) // the first term may be of a clock that is ahead
}

// Absent returns the lowest number of a pod that is missing although it could exist; -1
// if there is none.
func Absent(o *Observation) int32 {
	o.restoreEnded()
	o.arrange()
	if !external(o.Job) && (o.Batch == nil || o.batchHeld()) {
		return -1
	}
	return int32(slices.Index(o.podStates(), podAbsent))
}

// missing returns for how long the first missing pod has been seen to be missing.
func (o *Observation) missing() time.Duration {
	if o.Missing.IsZero() {
		return 0
	}
	return o.Now.Sub(o.Missing)
}

// letGo returns the time since which the Job controller may make pods: the creation of
// the Job, or the end of its last suspension.
func (o *Observation) letGo() time.Time {
	c := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionSuspended)
	switch {
	case c == nil:
		return o.Batch.CreationTimestamp.Time
	case c.Status == metav1.ConditionTrue: // still suspended
		return o.Now
	}
	return c.LastTransitionTime.Time
}
