package verdict

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// ranks counts the job's ranks by the state of their pods. Where an index has
// several pods, since a node rejected one, the furthest counts.
func (o *Observation) ranks() *v1alpha1.RankCounts {
	const pending, failed, running, succeeded = 0, 1, 2, 3
	state := make([]int, desired.Pods(&o.Job.Spec))
	for _, p := range o.Pods {
		i := o.index(p)
		if i < 0 {
			continue
		}
		s := pending
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			s = succeeded
		case p.Status.Phase == corev1.PodFailed && !o.rejected(p):
			s = failed
		case o.exited(p):
			s = failed
		case o.started(p) && p.Status.Phase == corev1.PodRunning:
			s = running
		}
		state[i] = max(state[i], s)
	}
	var n [4]int32
	for i, s := range state {
		_, ranks := desired.Ranks(&o.Job.Spec, int32(i))
		n[s] += ranks
	}
	return &v1alpha1.RankCounts{Pending: &n[pending], Failed: &n[failed], Running: &n[running], Succeeded: &n[succeeded]}
}

// exited reports whether a pod's application has failed.
func (o *Observation) exited(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode != 0
}

func numberOf(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return int32(n)
}
