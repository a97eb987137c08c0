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

// Pods that other webhooks have given a container, as a service mesh and a log shipper do,
// run on after their ranks have ended, and so does their sidecar: neither the pods nor their
// Job ever say how the ranks have ended. Launchers do, in their last words; sidecars are
// asked where a pod has no launcher, or its launcher had no answer.

// Said is what sidecars that still run were heard to say at the end of a job, by pod: nil is
// no failure of the job. Those that gave no answer are left out.
type Said map[types.UID]*podlife.Failure

// unheardPatience is how long after the last rank's end a failure may come of which neither
// a launcher nor a sidecar can tell: the other ranks would hear of it within that time.
const unheardPatience = 10 * time.Second

// lingers reports whether a pod whose ranks have ended with 0 is kept by a container that
// is neither theirs nor their sidecar.
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

// lingering are the pods that are kept so, once the ranks of all pods have ended with 0;
// none before.
func (o *Observation) lingering() []*corev1.Pod {
	best := make([]*corev1.Pod, desired.Pods(&o.Job.Spec))
	for _, p := range o.Pods {
		// Of several pods of a number, the one that has ended well counts.
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

// Unheard are the pods whose sidecars are to be asked whether the job has failed, since
// their launchers have not said that it has not.
func Unheard(o *Observation) (ask []*corev1.Pod) {
	if Finished(&o.Job.Status) {
		return nil
	}
	o.recall()
	o.arrange()
	for _, p := range o.lingering() {
		if o.outcome(p) != podlife.OutcomeClosed {
			ask = append(ask, p)
		}
	}
	return ask
}

// outcome is what a pod's launcher says of the end of its ranks; empty: nothing.
func (o *Observation) outcome(p *corev1.Pod) podlife.Outcome {
	if t := ended(o.application(p)); t != nil {
		if m := message(t.Message, podlife.KindRanks); m != nil {
			return m.Outcome
		}
	}
	return ""
}

// kept reports whether a job is over although pods of it run, and how long after the last
// rank's end that is believed.
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

// outlived is the end of a job whose ranks have all ended with 0, and of which containers
// of others keep pods running.
func (o *Observation) outlived(p Plan, patience time.Duration) Plan {
	if left := o.lastWords(patience); left > 0 {
		p.Requeue = left
		return p
	}
	if f := cmp.Or(o.denied(), o.untold()); f != nil {
		return o.failing(p, f, true)
	}
	return o.completed(p)
}

// untold is the failure of a job of which a launcher knows that there is one, and no
// answer says which; nil: there is none.
func (o *Observation) untold() *v1alpha1.Failure {
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
