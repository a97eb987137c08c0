package verdict

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// If another webhook has added a container to the pods, such as that of a service mesh
// or a log shipper, the pods and their sidecars keep running after their ranks have
// ended, so neither the pods nor their Job report how the ranks ended. Launchers report
// it in their termination messages. A sidecar is asked if its pod has no launcher, or
// if the launcher got no answer.

// Said is what running sidecars have reported at the end of a job, by pod. A nil entry
// means that the sidecar knows of no failure. Sidecars that gave no answer have no
// entry.
type Said map[types.UID]*podlife.Failure

// unheardPatience is how long after the end of the last rank a failure may still be
// reported that neither a launcher nor a sidecar of the pod can report: the other ranks
// learn of it within this time.
const unheardPatience = 10 * time.Second

// lingers reports whether a pod whose ranks have ended with 0 is kept running by a
// container that is neither the application nor the sidecar.
func (o *Observation) lingers(p *corev1.Pod) bool {
	if Terminal(p) || !o.succeeded(p) || ended(sidecar(p)) != nil {
		return false
	}
	name := o.ApplicationName(p)
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Name != name && c.State.Terminated == nil {
			return true
		}
	}
	return false
}

// lingering returns the pods that are kept running in this way, once the ranks of all
// pods have ended with 0; nil before.
func (o *Observation) lingering() []*corev1.Pod {
	best := make([]*corev1.Pod, desired.Pods(&o.Job.Spec))
	for _, p := range o.Pods {
		// Of several pods with one number, a pod that has succeeded counts.
		if i := o.index(p); i >= 0 && (best[i] == nil || p.Status.Phase == corev1.PodSucceeded) {
			best[i] = p
		}
	}
	var kept []*corev1.Pod
	for _, p := range best {
		switch {
		case p == nil:
			return nil
		case p.Status.Phase == corev1.PodSucceeded:
		case o.lingers(p):
			kept = append(kept, p)
		default:
			return nil
		}
	}
	return kept
}

// Unheard returns the pods whose sidecars have to be asked whether the job has failed,
// because their launchers have not reported a success.
func Unheard(o *Observation) (ask []*corev1.Pod) {
	if Finished(&o.Job.Status) {
		return nil
	}
	o.restoreEnded()
	o.arrange()
	for _, p := range o.lingering() {
		if o.outcome(p) != podlife.OutcomeClosed {
			ask = append(ask, p)
		}
	}
	return ask
}

// outcome returns what a pod's launcher reports about the end of its ranks; empty if it
// reports nothing.
func (o *Observation) outcome(p *corev1.Pod) podlife.Outcome {
	if t := ended(o.application(p)); t != nil {
		if m := message(t.Message, podlife.KindRanks); m != nil {
			return m.Outcome
		}
	}
	return ""
}

// kept reports whether a job is over although some of its pods run, and how long after
// the end of the last rank this is final.
func (o *Observation) kept() (over bool, patience time.Duration) {
	pods := o.lingering()
	patience = settle
	for _, p := range pods {
		if _, said := o.Said[p.UID]; !said && o.outcome(p) != podlife.OutcomeClosed {
			patience = unheardPatience
		}
	}
	return len(pods) > 0, patience
}

// outlived plans the end of a job whose ranks have all ended with 0 while containers of
// others keep pods running.
func (o *Observation) outlived(p Plan, patience time.Duration) Plan {
	if left := o.lastWords(patience); left > 0 {
		p.Requeue = left
		return p
	}
	if f := cmp.Or(o.reportedFailure(), o.unnamedFailure()); f != nil {
		return o.failing(p, f, true)
	}
	return o.completed(p)
}

// unnamedFailure returns the failure of a job if a launcher reports that it failed, but
// no sidecar's answer says how; nil if there is none.
func (o *Observation) unnamedFailure() *v1alpha1.Failure {
	for _, p := range o.lingering() {
		if _, said := o.Said[p.UID]; said || o.outcome(p) != podlife.OutcomeFailed {
			continue
		}
		number := AttemptOf(o.Job)
		return &v1alpha1.Failure{
			Attempt: &number, Reason: string(podlife.JobFailed), Pod: p.Name, Node: p.Spec.NodeName,
			Message: fmt.Sprintf("all ranks ended with exit code 0, and the sidecar of this pod knows of a failure of the job; its log says which: `%s`", logsOf(p, names.ContainerSidecar)),
		}
	}
	return nil
}
