package verdict

import (
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Bounds of the schema in api/v1alpha1. The API server refuses a whole status if one
// field exceeds its bound, and the job would make no progress.
const (
	messageMax    = 2000 // in bytes; the schema allows 2048 characters
	reasonMax     = 64
	nameMax       = 253
	transportsMax = 8
	transportMax  = 32
)

var (
	reasonForm    = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`) // metav1.Condition
	transportForm = regexp.MustCompile(`^[A-Za-z0-9]+$`)
)

// bound brings a status into the bounds of the schema. Much of its content is written
// by others: applications choose the text of termination messages, and the texts of
// nodes and of other controllers have no bounds.
func bound(s *v1alpha1.MPIJobStatus, o *Observation) {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.Reason, c.Message = word(c.Reason), limited(c.Message, messageMax)
	}
	s.Transports = transports(s.Transports)
	if s.FirstFailure == nil {
		return
	}
	f := *s.FirstFailure
	f.Reason, f.Message = word(f.Reason), limited(f.Message, messageMax)
	f.Output = limited(f.Output, podlife.OutputMax)
	f.Pod, f.Node = limited(f.Pod, nameMax), limited(f.Node, nameMax)
	f.Time = within(f.Time, o)
	s.FirstFailure = &f
}

func word(reason string) string {
	if len(reason) > reasonMax || !reasonForm.MatchString(reason) {
		return v1alpha1.ReasonUnknown
	}
	return reason
}

// limited cuts text at the end of a character. It replaces invalid UTF-8 by question
// marks, because the API server would store another text than the one written.
func limited(text string, limit int) string {
	return podlife.Cut(strings.ToValidUTF8(text, "?"), limit, "...")
}

// transports removes duplicates and names that cannot be a transport's name.
func transports(all []string) []string {
	if all == nil {
		return nil
	}
	all = slices.DeleteFunc(slices.Clone(all), func(t string) bool { return len(t) > transportMax || !transportForm.MatchString(t) })
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), transportsMax)]
}

// within limits a time to the life of the job: clocks of nodes differ, and an
// application may report any time.
func within(t *metav1.Time, o *Observation) *metav1.Time {
	switch {
	case t == nil:
		return nil
	case t.Before(&o.Job.CreationTimestamp):
		return o.Job.CreationTimestamp.DeepCopy()
	case t.After(o.Now):
		now := metav1.NewTime(o.Now)
		return &now
	}
	return t
}
