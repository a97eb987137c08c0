package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Told is what the events of Kubernetes say about why a job does not run yet.
type Told struct {
	Refusal string // refusal of the Job's pods by the API server, or of another controller's pods by the webhook; empty if none
	Remedy  string // how to resolve it; empty if not known
	Pod     string // name of the pod of Waits
	Waits   string // what that pod waits for, according to its sidecar, kubelet or scheduler; empty if not known
}

// unclearAfter is how long pods may take to be made and to start before their events
// are read. Most jobs have started by then.
const unclearAfter = 10 * time.Second

// unclear are the reasons of Pending that do not say what the pods wait for.
var unclear = []string{reasonStarting, reasonExpected, v1alpha1.ReasonPodsMissing}

// Unclear returns the objects whose events have to be read because the plan does not
// say why the job does not run: the Job (for pods of other controllers, the MPIJob) if
// pods are missing, and a pod that waits. Before they are due, left is the time until
// then.
func Unclear(o *Observation, p *Plan) (job bool, pod *corev1.Pod, left time.Duration) {
	c := state(&p.Status)
	if p.Action != Apply || c == nil || c.Type != v1alpha1.ConditionPending || !slices.Contains(unclear, c.Reason) {
		return false, nil, 0
	}
	// The clock of another replica may be ahead.
	if left = min(unclearAfter-o.Now.Sub(c.LastTransitionTime.Time), unclearAfter); left > 0 {
		return false, nil, left
	}
	if n, _ := o.absent(); n > 0 {
		return true, nil, 0
	}
	for _, q := range o.Pods {
		if !Terminal(q) && !o.joined(q) {
			pod = q
			break
		}
	}
	return len(o.lacks()) > 0, pod, 0
}

// EventRefused is the reason of the event that reports on an MPIJob that the webhook has
// refused one of its pods.
const EventRefused = "PodRefused"

// refusal returns why the API server refuses the Job's pods, and how to resolve that if
// it is known.
func (o *Observation) refusal() string {
	text := limited(o.Told.Refusal, messageMax/2)
	if o.Told.Remedy != "" {
		text += "; " + limited(o.Told.Remedy, messageMax/4)
	}
	return text
}

// lacks returns the numbers of the missing pods of another controller.
func (o *Observation) lacks() (numbers []int32) {
	if !external(o.Job) {
		return nil
	}
	for i, s := range o.podStates() {
		if s == podAbsent {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// lacking describes which pods of another controller have been missing for a while,
// which labels a pod of the job has, and why the last one was refused.
func (o *Observation) lacking() string {
	numbers := o.lacks()
	if len(numbers) == 0 || o.NoWebhook || o.missing() < unclearAfter && o.Told.Refusal == "" {
		return ""
	}
	text := fmt.Sprintf(`; pods are missing, of the numbers %s: a pod of this job has the labels %s: "true", %s: %s and its number`,
		limited(written(numbers), nameMax), names.LabelInject, names.LabelJob, o.Job.Name)
	if p, of := o.doubled(); p != nil {
		text += fmt.Sprintf("; pod %s has the number %d, which pod %s has: delete pod %s", p.Name, o.index(p), of.Name, p.Name)
	}
	if o.Told.Refusal != "" {
		text += "; the last one that was refused: " + limited(o.Told.Refusal, messageMax/2)
	}
	return text
}

// doubled returns a pod that has the number of another pod, which counts; nil if there
// is none.
func (o *Observation) doubled() (p, of *corev1.Pod) {
	first := map[int32]*corev1.Pod{}
	for _, p := range o.Pods {
		i := o.index(p)
		if i >= 0 && first[i] != nil && !Terminal(p) && !Terminal(first[i]) {
			return p, first[i]
		}
		if first[i] == nil {
			first[i] = p
		}
	}
	return nil, nil
}

// waitsFor describes what a pod that has not started waits for; empty if not known.
func (o *Observation) waitsFor() string {
	for _, p := range o.Pods {
		if p.Name == o.Told.Pod && !Terminal(p) && !o.joined(p) {
			return o.unbegun(p)
		}
	}
	return ""
}

// unbegun describes what a pod waits for. A running init container comes first, since
// it holds up everything else; then the events; then causes without an event.
func (o *Observation) unbegun(p *corev1.Pod) string {
	unplaced := p.Spec.NodeName == "" && unscheduled(p) == nil
	switch c := o.initRuns(p); {
	case c != nil:
		return fmt.Sprintf("; pod %s: init container %s has run since %s UTC, and the ranks start when it has ended; its output: `%s`",
			p.Name, c.Name, c.State.Running.StartedAt.UTC().Format(time.TimeOnly), logsOf(p, c.Name))
	case o.Told.Waits != "":
		return fmt.Sprintf("; pod %s: %s", p.Name, limited(o.Told.Waits, messageMax/2))
	case unplaced && len(p.Spec.ResourceClaims) > 0:
		return fmt.Sprintf("; pod %s has no node, and gets one when its resource claims are there, as `kubectl get resourceclaims` shows: %s", p.Name, limited(claimsOf(p), nameMax))
	case unplaced:
		return fmt.Sprintf("; pod %s has no node, and no scheduler has said why: does its scheduler %q run?", p.Name, limited(p.Spec.SchedulerName, nameMax))
	}
	if c := o.application(p); c != nil && c.State.Waiting != nil {
		return fmt.Sprintf("; pod %s: container %s: %s", p.Name, c.Name, strings.TrimSpace(limited(c.State.Waiting.Reason+" "+c.State.Waiting.Message, nameMax)))
	}
	return ""
}

// initRuns returns an init container that has run for a while and has to end before the
// others of its pod start; nil if there is none.
func (o *Observation) initRuns(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		s := statusOf(p.Status.InitContainerStatuses, c.Name)
		if (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) && s != nil && s.State.Running != nil && o.Now.Sub(s.State.Running.StartedAt.Time) >= unclearAfter {
			return s
		}
	}
	return nil
}

// claimsOf returns the resource claims that a pod names.
func claimsOf(p *corev1.Pod) string {
	var all []string
	for i := range p.Spec.ResourceClaims {
		switch c := &p.Spec.ResourceClaims[i]; {
		case c.ResourceClaimName != nil:
			all = append(all, *c.ResourceClaimName)
		case c.ResourceClaimTemplateName != nil:
			all = append(all, "one of the template "+*c.ResourceClaimTemplateName)
		}
	}
	return strings.Join(all, ", ")
}
