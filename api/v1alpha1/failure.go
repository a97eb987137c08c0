package v1alpha1

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Final reports whether another start would fail in the same way.
func (f *Failure) Final() bool {
	return f.Reason == ReasonDeadlineExceeded || f.Reason == string(podlife.TransportMissing)
}

// Restarts reports whether the rules let the job be restarted after f. How the ranks of an
// attempt have ended that was drained does not count, so that only a rule that names that
// reason is about it.
func (p *RunPolicy) Restarts(f *Failure) bool {
	for i := range p.RestartRules {
		if r := &p.RestartRules[i]; r.about(f) {
			return r.Action != ActionFail
		}
	}
	return true
}

func (r *RestartRule) about(f *Failure) bool {
	if f.Reason == ReasonDrained {
		return slices.Contains(r.Reasons, f.Reason) && len(r.ExitCodes) == 0
	}
	return (len(r.Reasons) == 0 || slices.Contains(r.Reasons, f.Reason)) &&
		(len(r.ExitCodes) == 0 || f.ExitCode != nil && slices.Contains(r.ExitCodes, *f.ExitCode))
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
