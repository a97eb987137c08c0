package verdict

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// Reasons of conditions that are not failures.
const (
	reasonCreated   = "Created"
	reasonStarting  = "PodsStarting"
	reasonExpected  = "PodsExpected"
	reasonStarted   = "RanksStarted"
	reasonSucceeded = desired.ReasonSucceeded
	reasonSuspended = "Suspended"
	reasonQueued    = "Queued"
	reasonRestarted = "Restarted"
)

// waits are the reasons of conditions that are not failures.
var waits = []string{
	reasonCreated, reasonStarting, reasonExpected, reasonStarted, reasonSucceeded, reasonSuspended, reasonQueued, reasonRestarted,
	v1alpha1.ReasonUnschedulable, v1alpha1.ReasonPodsMissing, v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerWaiting,
	v1alpha1.ReasonSchedulingGated, v1alpha1.ReasonAPIError, v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalid,
}

// known are all reasons that Outrigger's programs use. Pods may report others.
var known = slices.Concat(waits, v1alpha1.Failures)

// Known reports whether a reason is one of Outrigger's, and not one that a pod made up.
func Known(reason string) bool { return slices.Contains(known, reason) }

// unruly returns a warning about a restart rule that matches no failure.
func (o *Observation) unruly() string {
	if text := o.Job.Spec.RunPolicy.Unruly(); text != "" {
		return "; " + text
	}
	return ""
}
