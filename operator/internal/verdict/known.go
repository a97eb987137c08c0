package verdict

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// Reasons of conditions that are no failure.
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

// known are all reasons that programs of ours give. Pods may give others.
var known = []string{
	reasonCreated, reasonStarting, reasonExpected, reasonStarted, reasonSucceeded, reasonSuspended, reasonQueued, reasonRestarted,
	v1alpha1.ReasonPodLost, v1alpha1.ReasonDrained, v1alpha1.ReasonPodNotStarted, v1alpha1.ReasonOutOfMemory, v1alpha1.ReasonOutOfStorage, v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonSuspectedDeadlock,
	v1alpha1.ReasonPendingDeadlineExceeded, v1alpha1.ReasonPodRejected, v1alpha1.ReasonUnschedulable, v1alpha1.ReasonPodsMissing,
	v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerWaiting, v1alpha1.ReasonSchedulingGated, v1alpha1.ReasonAPIError,
	v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalid, v1alpha1.ReasonUnknown,
	string(podlife.RankExited), string(podlife.RankKilled), string(podlife.CannotStart), string(podlife.NoSidecar), string(podlife.Terminated),
	string(podlife.RankVanished), string(podlife.MemoryShort), string(podlife.RankExpelled), string(podlife.JobAborted), string(podlife.RanksDisagree), string(podlife.SidecarLost),
	string(podlife.SidecarFailed), string(podlife.SidecarRestarted), string(podlife.TransportMissing), string(podlife.Undelivered), string(podlife.JobFailed),
}

// Known reports whether a reason is one of ours, and not one that a pod made up.
func Known(reason string) bool { return slices.Contains(known, reason) }
