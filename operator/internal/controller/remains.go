package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// remains are the pods of a job that have ended and are not there any more.
type remains struct {
	pods  []*corev1.Pod
	words int // bytes of text that they have beside their names
}

// Bounds of what is remembered. Texts are what pods, nodes and whoever may write the
// status of pods have said; the first ones decide the verdict, and the pods that end
// after those had words enough are remembered by how they ended alone.
const (
	wordsMax     = 4 << 20 // bytes, of one job
	wordMax      = 4 << 10 // bytes, of one text; a termination message has no more
	remainsKept  = 8       // conditions and containers of each kind, of one pod
	podReasonMax = 128
	podWeight    = 3 << 10  // bytes, of one pod without its texts
	remainsMax   = 96 << 20 // bytes, of all jobs
)

func (m remains) weight() int { return m.words + podWeight*len(m.pods) }

// forgetPods drops the remains of a job.
func forgetPods(x *record) { x.ended = remains{} }

// shed forgets the remains of the jobs that have most of them, until those of all jobs
// have not more than limit bytes: nobody's pods take the operator's memory from others.
// How the first ones of a job have ended is in its status. Preconditions: mu is held.
func (r *recent) shed(limit int) {
	for r.weight > limit {
		var most types.NamespacedName
		weight := 0
		for key := range r.jobs {
			if w := r.jobs[key].ended.weight(); w > weight {
				most, weight = key, w
			}
		}
		r.change(most, forgetPods)
	}
}

// essence takes from a pod that has ended all that says nothing of how, and cuts its
// texts to the bounds, or to nothing when they have more than left bytes in all. It
// returns how many that are.
func essence(p *corev1.Pod, left int) (words int) {
	meta := p.ObjectMeta
	p.ObjectMeta.Reset()
	p.Name, p.Namespace, p.UID = meta.Name, meta.Namespace, meta.UID
	p.CreationTimestamp, p.DeletionTimestamp, p.DeletionGracePeriodSeconds = meta.CreationTimestamp, meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds
	p.Labels, p.Annotations = ours(meta.Labels), annotationsRead(meta.Annotations)
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	was := p.Status
	p.Status = corev1.PodStatus{
		Phase: was.Phase, StartTime: was.StartTime, Reason: was.Reason, Message: was.Message,
		Conditions:            slices.Clone(was.Conditions[:min(len(was.Conditions), remainsKept)]),
		InitContainerStatuses: endings(was.InitContainerStatuses, names.ContainerSidecar), ContainerStatuses: endings(was.ContainerStatuses, p.Annotations[names.AnnotationContainer]),
	}
	texts := textsOf(&p.Status)
	for t, limit := range texts {
		if len(*t) > limit {
			*t = strings.Clone((*t)[:limit]) // or the whole of it stays in memory
		}
		if words+len(*t) > left {
			*t = ""
		}
		words += len(*t)
	}
	return words
}

// endings is how containers have ended: the one of a name, and the first ones of the
// others.
func endings(all []corev1.ContainerStatus, name string) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	others := remainsKept
	for i := range all {
		c := &all[i]
		if c.Name != name {
			if others--; others < 0 {
				continue
			}
		}
		kept = append(kept, corev1.ContainerStatus{
			Name: c.Name, RestartCount: c.RestartCount,
			State:                corev1.ContainerState{Terminated: c.State.Terminated},
			LastTerminationState: corev1.ContainerState{Terminated: c.LastTerminationState.Terminated},
		})
	}
	return kept
}

// textsOf are the texts of a pod's status, with how long each may be.
func textsOf(s *corev1.PodStatus) func(func(*string, int) bool) {
	return func(yield func(*string, int) bool) {
		ok := yield(&s.Reason, podReasonMax) && yield(&s.Message, wordMax)
		for i := range s.Conditions {
			c := &s.Conditions[i]
			ok = ok && yield(&c.Reason, podReasonMax) && yield(&c.Message, wordMax)
		}
		for _, all := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
			for i := range all {
				for _, t := range []*corev1.ContainerStateTerminated{all[i].State.Terminated, all[i].LastTerminationState.Terminated} {
					if t != nil {
						t.ContainerID = ""
						ok = ok && yield(&t.Reason, podReasonMax) && yield(&t.Message, wordMax)
					}
				}
			}
		}
	}
}
