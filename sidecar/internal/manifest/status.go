package manifest

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// End is how a job ended.
type End struct {
	Begun, Ended time.Time
	Restarts     int
	Succeeded    []bool // by pod of the last attempt
	Transports   []string
	Complete     bool              // every rank has ended with code 0
	Failure      *v1alpha1.Failure // failure of the last attempt that failed; nil: none
}

// Restartable reports whether a failure leads to another attempt, as it would in a cluster:
// a failure that another attempt would repeat does not.
func (p *Plan) Restartable(attempt int, f *v1alpha1.Failure) bool {
	return attempt < p.RestartLimit && !f.Final() && (p.Job == nil || p.Job.Spec.RunPolicy.Restarts(f))
}

// Status returns the status that the job's object would have.
func (p *Plan) Status(e *End) v1alpha1.MPIJobStatus {
	restarts, begun, ended := int32(e.Restarts), metav1.NewTime(e.Begun), metav1.NewTime(e.Ended)
	s := v1alpha1.MPIJobStatus{
		Ranks: p.ranks(e.Succeeded), Transports: e.Transports, StartTime: &begun, CompletionTime: &ended, FirstFailure: e.Failure,
	}
	if restarts > 0 {
		s.Restarts = &restarts
	}
	c := metav1.Condition{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, LastTransitionTime: ended}
	c.Reason, c.Message = "RanksSucceeded", fmt.Sprintf("all %d ranks ended with exit code 0", p.Job.Spec.Ranks)
	if f := e.Failure; !e.Complete {
		c.Type, c.Reason, c.Message = v1alpha1.ConditionFailed, f.Reason, f.Sentence()
		if p.RestartLimit > 0 && e.Restarts >= p.RestartLimit {
			c.Message += fmt.Sprintf(" (after %d restarts, the limit)", p.RestartLimit)
		}
	}
	s.Conditions = []metav1.Condition{c}
	return s
}

// ranks counts the ranks by the end of their pod.
func (p *Plan) ranks(succeeded []bool) *v1alpha1.RankCounts {
	var none, good, bad int32
	for i := range jobdoc.Pods(&p.Job.Spec) {
		_, n := jobdoc.Ranks(&p.Job.Spec, i)
		if int(i) < len(succeeded) && succeeded[i] {
			good += n
		} else {
			bad += n
		}
	}
	return &v1alpha1.RankCounts{Pending: &none, Running: &none, Succeeded: &good, Failed: &bad}
}
