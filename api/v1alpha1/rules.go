package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// Failures are the reasons of failures that programs of ours give, which a restart rule may
// name. Pods may give others.
var Failures = []string{
	ReasonPodLost, ReasonDrained, ReasonPodNotStarted, ReasonOutOfMemory, ReasonOutOfStorage, ReasonDeadlineExceeded, ReasonSuspectedDeadlock,
	ReasonPendingDeadlineExceeded, ReasonPodRejected, ReasonUnknown,
	string(podlife.RankExited), string(podlife.RankKilled), string(podlife.CannotStart), string(podlife.NoSidecar), string(podlife.Terminated),
	string(podlife.RankVanished), string(podlife.MemoryShort), string(podlife.RankExpelled), string(podlife.JobAborted), string(podlife.RanksDisagree), string(podlife.SidecarLost),
	string(podlife.SidecarFailed), string(podlife.SidecarRestarted), string(podlife.TransportMissing), string(podlife.Undelivered), string(podlife.JobFailed),
}

// meant are words of Kubernetes for failures that have another reason here.
var meant = map[string]string{
	"OOMKilled": ReasonOutOfMemory, "Evicted": ReasonDrained, "Preempted": ReasonDrained, "NodeLost": ReasonPodLost,
	"Error": string(podlife.RankExited), "StartError": string(podlife.CannotStart), "ContainerCannotRun": string(podlife.CannotStart),
}

// ruleMax bounds a reason in a warning, in bytes; the schema allows 64 characters.
const ruleMax = 64

// Unruly warns of the first restart rule with a reason that no failure has, so that it is about
// none; empty: there is none. To refuse it would refuse MPIJobs that were taken before, and
// reasons of later releases.
func (p *RunPolicy) Unruly() string {
	for i := range p.RestartRules {
		for _, r := range p.RestartRules[i].Reasons {
			if slices.Contains(Failures, r) {
				continue
			}
			text := fmt.Sprintf("runPolicy.restartRules[%d] names the reason %s, which no failure has", i, podlife.Cut(strings.ToValidUTF8(r, "?"), ruleMax, "..."))
			if m := meant[r]; m != "" {
				return text + ": is " + m + " meant?"
			}
			for _, f := range Failures {
				if strings.EqualFold(f, r) {
					return text + ": is " + f + " meant?"
				}
			}
			return text
		}
	}
	return ""
}
