package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// toldMax is how many pods the status describes in more detail than that they
// succeeded. The first pods decide the verdict; the others fail because of them.
const toldMax = 4

// restoreEnded adds the ended pods of another controller that the status records and
// that no longer exist. That controller has deleted them, possibly while another
// operator was running.
func (o *Observation) restoreEnded() {
	e := o.Job.Status.EndedPods
	if e == nil || !external(o.Job) {
		return
	}
	there := map[int32]bool{}
	for _, p := range o.Pods {
		if Terminal(p) && o.started(p) {
			there[o.index(p)] = true
		}
	}
	pods := desired.Pods(&o.Job.Spec)
	for i := range e.Told {
		t := &e.Told[i]
		if t.Number != nil && *t.Number >= 0 && *t.Number < pods && !there[*t.Number] {
			there[*t.Number] = true
			o.Pods = append(o.Pods, o.standIn(t))
		}
	}
	for _, n := range intervals(e.Succeeded, pods) {
		if !there[n] {
			o.Pods = append(o.Pods, o.standIn(&v1alpha1.EndedPod{Number: &n, Name: fmt.Sprint(o.Job.Name, " number ", n), Application: &v1alpha1.EndedContainer{}}))
		}
	}
}

// standIn returns a pod with the recorded end.
func (o *Observation) standIn(e *v1alpha1.EndedPod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: e.Name, Namespace: o.Job.Namespace, CreationTimestamp: o.Job.CreationTimestamp,
		Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(int(*e.Number))},
	}}
	p.Spec.NodeName, p.Status.Phase = e.Node, corev1.PodSucceeded
	if c := e.Application; c != nil {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{containerStatus(c, o.Job.Spec.Template.Spec.Containers[0].Name)}
		if c.ExitCode != nil && *c.ExitCode != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
	if c := e.Sidecar; c != nil {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{containerStatus(c, names.ContainerSidecar)}
	}
	if e.Disruption != "" {
		reason, text, _ := strings.Cut(e.Disruption, ": ")
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: text}}
	}
	return p
}

// endedPods returns what the status records about ended pods, including what it already
// had.
func (o *Observation) endedPods() *v1alpha1.EndedPods {
	if !external(o.Job) {
		return nil
	}
	e := new(v1alpha1.EndedPods)
	if was := o.Job.Status.EndedPods; was != nil {
		e.Told = slices.Clone(was.Told)
	}
	var well []int32
	for _, p := range o.Pods {
		i := o.index(p)
		if i < 0 || !Terminal(p) || !o.started(p) {
			continue
		}
		if o.succeededQuietly(p) {
			well = append(well, i)
			continue
		}
		if len(e.Told) < toldMax && !slices.ContainsFunc(e.Told, func(t v1alpha1.EndedPod) bool { return t.Number != nil && *t.Number == i }) {
			e.Told = append(e.Told, o.endedPod(p, i))
		}
	}
	slices.Sort(well)
	if e.Succeeded = written(slices.Compact(well)); e.Succeeded == "" && len(e.Told) == 0 {
		return nil
	}
	return e
}

// succeededQuietly reports whether a pod has succeeded and its sidecar reports no
// failed rank.
func (o *Observation) succeededQuietly(p *corev1.Pod) bool {
	if !o.succeeded(p) || o.daemonFailed(p) != nil {
		return false
	}
	t := ended(sidecar(p))
	if t == nil {
		return true
	}
	m := message(t.Message, podlife.KindSidecar)
	return m == nil || len(m.Failures) == 0
}

// endedPod returns the record of an ended pod in the status.
func (o *Observation) endedPod(p *corev1.Pod, number int32) v1alpha1.EndedPod {
	why := disruption(p)
	if why == "" && deletedBefore(p, o.ending(p)) {
		why = v1alpha1.ReasonPodLost + ": " + textDeleted
	}
	return v1alpha1.EndedPod{
		Number: &number, Name: limited(p.Name, nameMax), Node: limited(p.Spec.NodeName, nameMax), Disruption: limited(why, messageMax),
		Application: container(ended(o.application(p))), Sidecar: container(ended(sidecar(p))),
	}
}

// ending returns when a pod's application has ended.
func (o *Observation) ending(p *corev1.Pod) time.Time {
	if t := ended(o.application(p)); t != nil {
		return o.endOf(t, p)
	}
	return o.lastChange(p)
}

// Bounds of the schema, which are those that the kubelet documents.
const (
	wordsMax       = 4096
	endedReasonMax = 256
)

func container(t *corev1.ContainerStateTerminated) *v1alpha1.EndedContainer {
	if t == nil {
		return nil
	}
	e := &v1alpha1.EndedContainer{ExitCode: &t.ExitCode, Reason: limited(t.Reason, endedReasonMax), Message: limited(t.Message, wordsMax)}
	if t.Signal != 0 {
		e.Signal = &t.Signal
	}
	if !t.FinishedAt.IsZero() {
		e.Time = &t.FinishedAt
	}
	return e
}

// containerStatus returns the status of a container with the recorded end.
func containerStatus(e *v1alpha1.EndedContainer, name string) corev1.ContainerStatus {
	t := &corev1.ContainerStateTerminated{Reason: e.Reason, Message: e.Message}
	if e.ExitCode != nil {
		t.ExitCode = *e.ExitCode
	}
	if e.Signal != nil {
		t.Signal = *e.Signal
	}
	if e.Time != nil {
		t.FinishedAt = *e.Time
	}
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: t}}
}

// written formats sorted numbers as ranges, such as 0-3,5.
func written(numbers []int32) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(numbers[i])))
		if last > i {
			b.WriteString("-" + strconv.Itoa(int(numbers[last])))
		}
		i = last + 1
	}
	return b.String()
}

// intervals parses the output of written and returns the numbers below limit. It skips
// other text, because any client with the right to write the status may have written
// it.
func intervals(text string, limit int32) []int32 {
	var all []int32
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, last := numberOf(from), numberOf(to)
		if first < 0 || last < first || len(all) > 0 && first <= all[len(all)-1] {
			continue
		}
		for n := first; n <= last && n < limit; n++ {
			all = append(all, n)
		}
	}
	return all
}
