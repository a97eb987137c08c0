// Package verdict reads the state of an MPIJob off its pods and says what to do
// next. It is pure: the controller observes, asks Next, and carries it out.
package verdict

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// Observation is what is there of one attempt of a job.
type Observation struct {
	Job        *v1alpha1.MPIJob
	Batch      *batchv1.Job  // nil: there is none
	Pods       []*corev1.Pod // of the attempt
	Before     []*corev1.Pod // that an earlier MPIJob of the name has left in the attempt's way (InTheWay)
	Transports []string      // that a sidecar said are in use; nil: not known
	Waits      *Waits        // what the ranks wait for; nil: nobody has asked
	Told       Told          // what events say of a job that does not run yet
	Said       Said          // what sidecars of pods that others keep running have said; nil: nothing
	Hook       Hook          // what an event says of the pod of the first failure
	NoWebhook  bool          // pods of other controllers get no sidecars: the webhook is off
	NoProfile  bool          // the profile that the job names is missing
	NoQueue    bool          // the job names a queue, and the cluster has no controller of queues
	// Lost is the node of Plan.Reads if it is not Ready, so that nothing is heard of the end
	// of its pods; empty: it is, or is not known.
	Lost string
	// Noticed is when a sign of a failure (Sign) was first seen, by the clock of
	// Now: clocks of nodes differ, and nobody shall wait for theirs. Zero: now.
	Noticed time.Time
	// Missing is since when the pod of a number (Absent) has been seen to be missing,
	// by the same clock. Zero: now.
	Missing time.Time
	Now     time.Time
}

// AttemptOf is the number of a job's present attempt: how often it has been started again.
func AttemptOf(j *v1alpha1.MPIJob) int32 { return restarts(j) + drains(j) }

// restarts is how often a job was started again after a failure, which restartLimit bounds.
func restarts(j *v1alpha1.MPIJob) int32 { return max(counted(j.Status.Restarts), 0) }

// drains is how often a job was started again because its pods were taken away.
func drains(j *v1alpha1.MPIJob) int32 { return max(counted(j.Status.Drains), 0) }

func counted(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// Made reports whether a pod is one that the attempt's Job has made, and no
// other one with its labels. The Job is nil when it is gone.
func Made(p *corev1.Pod, name string, batch *batchv1.Job) bool {
	c := metav1.GetControllerOf(p)
	return c != nil && c.Kind == "Job" && c.Name == name && (batch == nil || c.UID == batch.UID)
}

// Of reports whether a pod is of a job's present attempt, whose Job is batch, if it is
// there. An MPIJob that is created again is not to be judged by the pods of the earlier
// one, of which some go and some have failed: where its status tells of no Job that it
// has had, none is its own.
func Of(p *corev1.Pod, job *v1alpha1.MPIJob, batch *batchv1.Job) bool {
	if desired.NumberOf(p.Labels) != AttemptOf(job) {
		return false
	}
	if external(job) {
		return !Earlier(p, job)
	}
	name := desired.AttemptName(job.Name, AttemptOf(job))
	return (batch != nil || job.Status.JobName == name) && Made(p, name, batch)
}

// arrange puts the pods into their order of creation, so that the same pods give
// the same answer, and leaves out those of before a suspension: that they were
// ended is no failure.
func (o *Observation) arrange() {
	o.Pods = slices.SortedFunc(slices.Values(o.Pods), func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if o.Batch == nil || external(o.Job) {
		return
	}
	start := o.batchStart()
	o.Pods = slices.DeleteFunc(o.Pods, func(p *corev1.Pod) bool {
		return o.batchHeld() || start == nil || p.CreationTimestamp.Before(start)
	})
}

// batchStart is when the batch Job began to make pods; nil: it has not. A Job that
// was suspended keeps the time of its first start (before Kubernetes 1.36) until its
// controller has seen that it is resumed, and sets it anew.
func (o *Observation) batchStart() *metav1.Time {
	if o.batchCondition(batchv1.JobSuspended) != nil {
		return nil
	}
	return o.Batch.Status.StartTime
}

// batchCondition finds a True condition of the batch Job.
func (o *Observation) batchCondition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	if o.Batch == nil {
		return nil
	}
	for i := range o.Batch.Status.Conditions {
		if c := &o.Batch.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// application is the status of a pod's application, nil before it has one.
func (o *Observation) application(p *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(p.Status.ContainerStatuses, o.ApplicationName(p))
}

// ApplicationName is the name of the application's container in a pod: another
// controller's pod may have another one than the template, which the webhook has noted.
func (o *Observation) ApplicationName(p *corev1.Pod) string {
	if name := p.Annotations[names.AnnotationContainer]; name != "" && external(o.Job) {
		return name
	}
	return o.Job.Spec.Template.Spec.Containers[0].Name
}

func sidecar(p *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(p.Status.InitContainerStatuses, names.ContainerSidecar)
}

func statusOf(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// ended is how a container has ended, now or before it was started again.
func ended(c *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case c == nil:
		return nil
	case c.State.Terminated != nil:
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// started reports whether a pod's application has been started: its launcher waits for the
// sidecar, so that its ranks need not have been (joined).
func (o *Observation) started(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && (c.State.Running != nil || ended(c) != nil)
}

// joined reports whether a pod's ranks have been started: its application has been, and its
// sidecar is ready. Once all ranks of an attempt have been, a sidecar that runs is taken for
// ready: a kubelet that starts again does not know.
func (o *Observation) joined(p *corev1.Pod) bool {
	if !o.started(p) {
		return false
	}
	return ended(o.application(p)) != nil || !Awaits(p) || meta.IsStatusConditionTrue(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
}

// Awaits reports whether a pod's sidecar runs, and is not ready: it waits for what it needs
// outside of the pod.
func Awaits(p *corev1.Pod) bool {
	c := sidecar(p)
	return c != nil && c.State.Running != nil && !c.Ready
}

// Terminal reports whether nothing of a pod runs any more.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// index is a pod's number in the job, or -1.
func (o *Observation) index(p *corev1.Pod) int32 { return Number(p, o.Job) }

// Number is a pod's number in a job, or -1.
func Number(p *corev1.Pod, job *v1alpha1.MPIJob) int32 {
	n := numberOf(p.Labels[batchv1.JobCompletionIndexAnnotation])
	if n >= desired.Pods(&job.Spec) {
		return -1
	}
	return n
}

// Traffic is what a pod's sidecar has left said of its transports.
func Traffic(p *corev1.Pod) []podlife.Traffic {
	t := ended(sidecar(p))
	if t == nil {
		return nil
	}
	m := message(t.Message, podlife.KindSidecar)
	if m == nil {
		return nil
	}
	return m.Traffic
}
