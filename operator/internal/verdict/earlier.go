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

// If an MPIJob is deleted and created again, its pods have the host names of the
// earlier job's pods, and its Service selects both. A sidecar that dials such a name
// may reach a pod of the earlier job that is still ending; the certificate of that pod
// is not of this job. So no pod is made until the pods of the earlier job have ended,
// or should have ended: a pod on a lost node stays as long as the node, and a pod whose
// Job is kept (--cascade=orphan) as long as the Job. Pods of other controllers find
// each other by address, so this does not apply to them.

// Earlier reports whether a pod of another controller has joined an earlier MPIJob of
// this name, which was deleted. A pod without the label that records which MPIJob it
// joined counts as one of this job.
func Earlier(p *corev1.Pod, job *v1alpha1.MPIJob) bool {
	uid := p.Labels[names.LabelJobUID]
	return uid != "" && uid != string(job.UID)
}

// InTheWay reports whether a pod of an earlier MPIJob of this name has a host name that
// a pod of the present attempt will have. It applies only while there is no Job. Pods
// that are younger than the MPIJob are its own; their Job has only not reached the
// cache.
func InTheWay(p *corev1.Pod, job *v1alpha1.MPIJob, batch *batchv1.Job) bool {
	return batch == nil && !external(job) && !Terminal(p) && desired.NumberOf(p.Labels) == AttemptOf(job) &&
		!p.CreationTimestamp.After(job.CreationTimestamp.Time) && Made(p, desired.AttemptName(job.Name, AttemptOf(job)), nil)
}

// wayLeft returns how much longer the job waits for the pods in its way: until
// removalPatience after their grace period has ended, or after the job was created if
// their deletion was not requested.
func (o *Observation) wayLeft() (left time.Duration) {
	for _, p := range o.Before {
		end := o.Job.CreationTimestamp.Time
		if p.DeletionTimestamp != nil {
			end = p.DeletionTimestamp.Time // includes the grace period
		}
		left = max(left, end.Add(removalPatience).Sub(o.Now))
	}
	return left
}

// inTheWayMax bounds the pods that the condition names.
const inTheWayMax = 4

// inTheWay returns the message about the pods for whose end the job waits.
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
