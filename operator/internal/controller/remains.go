package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// remains are the ended pods of a job that no longer exist.
type remains struct {
	pods  []*corev1.Pod
	words int // bytes of the texts in the pods' statuses, without the names
}

// Bounds of what is remembered. The texts come from pods, nodes and every user with the
// right to write pod statuses. The first pods that end decide the verdict. When the
// text of a job reaches wordsMax, later pods are remembered without texts.
const (
	wordsMax     = 4 << 20 // bytes of text per job
	wordMax      = 4 << 10 // bytes per text; a termination message is at most as long
	remainsKept  = 8       // conditions, and containers of each kind, per pod
	podReasonMax = 128
	podWeight    = 3 << 10  // bytes per pod without its texts
	remainsMax   = 96 << 20 // bytes for all jobs
)

func (m remains) weight() int { return m.words + podWeight*len(m.pods) }

// forgetPods drops the remembered pods of a job.
func forgetPods(x *record) { x.ended = remains{} }

// shed forgets the remembered pods of the jobs with the largest weight until the total
// is at most limit bytes, so that the pods of one job do not take the memory of the
// others. The status of a job holds how its first pods ended. Preconditions: mu is
// held.
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

// essence removes all parts of an ended pod that do not describe its end, and shortens
// its texts to the bounds. A text that does not fit into left bytes in total is
// removed. It returns the number of bytes of text that are kept.
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
			*t = strings.Clone((*t)[:limit]) // a substring would keep the whole text in memory
		}
		if words+len(*t) > left {
			*t = ""
		}
		words += len(*t)
	}
	return words
}

// endings returns how containers have ended: the container with the given name, and the
// first remainsKept others.
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

// textsOf yields the texts of a pod's status with the maximum length of each.
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
