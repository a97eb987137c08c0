package v1alpha1

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Final reports whether another start would fail in the same way.
func (f *Failure) Final() bool {
	return f.Reason == ReasonDeadlineExceeded || f.Reason == string(podlife.TransportMissing)
}

// Sentence says the failure to a person.
func (f *Failure) Sentence() string {
	text := f.Message
	if f.Rank != nil {
		text = fmt.Sprintf("rank %d: %s", *f.Rank, text)
	}
	if f.Pod != "" {
		text += fmt.Sprintf(" (pod %s", f.Pod)
		if f.Node != "" {
			text += ", node " + f.Node
		}
		text += ")"
	}
	return text
}
