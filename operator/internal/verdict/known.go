package verdict

import (
	"fmt"
	"slices"
	"strings"

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

// waits are the reasons of a condition that is no failure.
var waits = []string{
	reasonCreated, reasonStarting, reasonExpected, reasonStarted, reasonSucceeded, reasonSuspended, reasonQueued, reasonRestarted,
	v1alpha1.ReasonUnschedulable, v1alpha1.ReasonPodsMissing, v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerWaiting,
	v1alpha1.ReasonSchedulingGated, v1alpha1.ReasonAPIError, v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalid,
}

// failures are the reasons of failures that programs of ours give.
var failures = []string{
	v1alpha1.ReasonPodLost, v1alpha1.ReasonDrained, v1alpha1.ReasonPodNotStarted, v1alpha1.ReasonOutOfMemory, v1alpha1.ReasonOutOfStorage, v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonSuspectedDeadlock,
	v1alpha1.ReasonPendingDeadlineExceeded, v1alpha1.ReasonPodRejected, v1alpha1.ReasonUnknown,
	string(podlife.RankExited), string(podlife.RankKilled), string(podlife.CannotStart), string(podlife.NoSidecar), string(podlife.Terminated),
	string(podlife.RankVanished), string(podlife.MemoryShort), string(podlife.RankExpelled), string(podlife.JobAborted), string(podlife.RanksDisagree), string(podlife.SidecarLost),
	string(podlife.SidecarFailed), string(podlife.SidecarRestarted), string(podlife.TransportMissing), string(podlife.Undelivered), string(podlife.JobFailed),
}

// known are all reasons that programs of ours give. Pods may give others.
var known = slices.Concat(waits, failures)

// Known reports whether a reason is one of ours, and not one that a pod made up.
func Known(reason string) bool { return slices.Contains(known, reason) }

// meant are words of Kubernetes for failures that have another reason here.
var meant = map[string]string{
	"OOMKilled": v1alpha1.ReasonOutOfMemory, "Evicted": v1alpha1.ReasonDrained, "Preempted": v1alpha1.ReasonDrained, "NodeLost": v1alpha1.ReasonPodLost,
	"Error": string(podlife.RankExited), "StartError": string(podlife.CannotStart), "ContainerCannotRun": string(podlife.CannotStart),
}

// unruly warns of a restart rule with a reason that no failure has, so that it is about none:
// to refuse it would refuse MPIJobs that were taken before, and reasons of later releases.
func (o *Observation) unruly() string {
	for i := range o.Job.Spec.RunPolicy.RestartRules {
		for _, r := range o.Job.Spec.RunPolicy.RestartRules[i].Reasons {
			if slices.Contains(failures, r) {
				continue
			}
			text := fmt.Sprintf("; runPolicy.restartRules[%d] names the reason %s, which no failure has", i, limited(r, reasonMax))
			if m := meant[r]; m != "" {
				return text + ": is " + m + " meant?"
			}
			for _, f := range failures {
				if strings.EqualFold(f, r) {
					return text + ": is " + f + " meant?"
				}
			}
			return text
		}
	}
	return ""
}
