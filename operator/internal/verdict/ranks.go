package verdict

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// ranks counts the job's ranks by the state of their pods. If there are several pods
// with one number, because a node rejected one, the furthest state counts.
func (o *Observation) ranks() *v1alpha1.RankCounts {
	n := o.count()
	return counts(n[podAbsent]+n[podPending], n[podRunning], n[podSucceeded], n[podFailed])
}

// remains counts the ranks of a failed job. Pods may be deleted by a user, or by the
// garbage collector for ended pods. Their ranks keep the states that they had, and are
// neither pending nor running.
func (o *Observation) remains(before *v1alpha1.RankCounts) *v1alpha1.RankCounts {
	n := o.count()
	well := n[podSucceeded]
	if before.Succeeded != nil {
		well = min(max(well, *before.Succeeded), n[podSucceeded]+n[podAbsent])
	}
	return counts(n[podPending], n[podRunning], well, n[podFailed]+n[podAbsent]-(well-n[podSucceeded]))
}

func counts(pending, running, succeeded, failed int32) *v1alpha1.RankCounts {
	return &v1alpha1.RankCounts{Pending: &pending, Running: &running, Succeeded: &succeeded, Failed: &failed}
}

// States of a pod by which its ranks are counted, the furthest last.
const (
	podAbsent = iota
	podPending
	podFailed
	podRunning
	podSucceeded
	podStates
)

// count returns the number of ranks in each state.
func (o *Observation) count() (n [podStates]int32) {
	for i, s := range o.podStates() {
		_, ranks := desired.Ranks(&o.Job.Spec, int32(i))
		n[s] += ranks
	}
	return n
}

// podStates returns the states of the job's pods, by number.
func (o *Observation) podStates() []int {
	state := make([]int, desired.Pods(&o.Job.Spec))
	for _, p := range o.Pods {
		i := o.index(p)
		if i < 0 {
			continue
		}
		s := podPending
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			s = podSucceeded
		case p.Status.Phase == corev1.PodFailed && !o.rejected(p):
			s = podFailed
		case o.exited(p):
			s = podFailed
		case o.joined(p) && p.Status.Phase == corev1.PodRunning:
			s = podRunning
		}
		state[i] = max(state[i], s)
	}
	return state
}

// exited reports whether a pod's application has failed.
func (o *Observation) exited(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode != 0
}

func numberOf(text string) int32 { return desired.Numeral(text) }
