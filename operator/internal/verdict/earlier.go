package verdict

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// An MPIJob that is deleted and created again gives its pods the host names of the earlier
// one's, and their Service selects both: a sidecar that dials such a name may reach a pod that
// still ends, which no certificate makes one of this job. So no pod is made until those of the
// earlier job have ended, or should have: a pod on a lost node stays for as long as the node, and
// one whose Job is kept (--cascade=orphan) for as long as that. Pods of other controllers find
// each other by their addresses.

// Earlier reports whether a pod of another controller has joined an earlier MPIJob of
// the name, which was deleted. One from before pods were told which they joined has not.
func Earlier(p *corev1.Pod, job *v1alpha1.MPIJob) bool {
	uid := p.Labels[names.LabelJobUID]
	return uid != "" && uid != string(job.UID)
}

// InTheWay reports whether a pod that an earlier MPIJob of the name has left has a host name
// that a pod of the present attempt will have, of which there is no Job yet. Pods that are
// younger than the MPIJob are its own, and those of a Job that nobody has heard of yet.
func InTheWay(p *corev1.Pod, job *v1alpha1.MPIJob, batch *batchv1.Job) bool {
	return batch == nil && !external(job) && !Terminal(p) && desired.NumberOf(p.Labels) == AttemptOf(job) &&
		!p.CreationTimestamp.After(job.CreationTimestamp.Time) && Made(p, desired.AttemptName(job.Name, AttemptOf(job)), nil)
}

// wayLeft is how much longer the job waits for the pods in its way: until removalPatience after
// their grace has ended, or after the job was created if their end was not asked for.
func (o *Observation) wayLeft() (left time.Duration) {
	for _, p := range o.Before {
		end := o.Job.CreationTimestamp.Time
		if p.DeletionTimestamp != nil {
			end = p.DeletionTimestamp.Time // with the grace
		}
		left = max(left, end.Add(removalPatience).Sub(o.Now))
	}
	return left
}

// inTheWayMax bounds the pods that the condition names.
const inTheWayMax = 4

// inTheWay is what is said of the pods for whose end the job waits.
func (o *Observation) inTheWay() string {
	var pods []string
	for _, p := range o.Before[:min(len(o.Before), inTheWayMax)] {
		name := p.Name
		if p.Spec.NodeName != "" {
			name += " (node " + p.Spec.NodeName + ")"
		}
		pods = append(pods, name)
	}
	text := strings.Join(pods, ", ")
	if n := len(o.Before) - len(pods); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return "an earlier MPIJob of this name has left pods that still end, and have the host names of this job's; it begins when they are gone: " + text
}
