package verdict

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Told is what Kubernetes' events say of why a job does not run yet.
type Told struct {
	Refusal string // of the Job's pods, by the API server; empty: nothing
	Pod     string // name of the pod that Waits is about
	Waits   string // what that pod waits for, by its sidecar, its kubelet or its scheduler; empty: nothing
}

// unclearAfter is how long pods may take to be made, and to start, before their events are
// read: most jobs have begun by then.
const unclearAfter = 10 * time.Second

// Unclear says of which objects events are to be read, since a plan does not say why the
// job does not run: of the Job, since pods of it are missing, or of a pod that waits. Before
// their time, left is how long that is away.
func Unclear(o *Observation, p *Plan) (job bool, pod *corev1.Pod, left time.Duration) {
	c := state(&p.Status)
	if p.Action != Apply || c == nil || c.Type != v1alpha1.ConditionPending || c.Reason != reasonStarting && c.Reason != v1alpha1.ReasonPodsMissing {
		return false, nil, 0
	}
	// Another replica's clock may be ahead.
	if left = min(unclearAfter-o.Now.Sub(c.LastTransitionTime.Time), unclearAfter); left > 0 {
		return false, nil, left
	}
	if n, _ := o.absent(); n > 0 {
		return true, nil, 0
	}
	for _, q := range o.Pods {
		if !Terminal(q) && !o.joined(q) {
			return false, q, 0
		}
	}
	return false, nil, 0
}

// refusal is why the API server does not let the Job's pods be made, with the remedy where
// the pods' own containers are not the reason.
func (o *Observation) refusal() string {
	text := limited(o.Told.Refusal, messageMax/2)
	for _, of := range []string{"per Container", "resources.requests", "must specify"} { // LimitRanges, their defaults, quotas
		if strings.Contains(text, of) {
			return text + "; sidecar.resources, of the MPIJob or of the chart, says what the containers outrigger and outrigger-install request and are limited to"
		}
	}
	return text
}

// waitsFor says of one pod that has not begun what it waits for; empty: nothing is known.
func (o *Observation) waitsFor() string {
	for _, p := range o.Pods {
		switch {
		case p.Name != o.Told.Pod || Terminal(p) || o.joined(p):
		case o.Told.Waits != "":
			return fmt.Sprintf("; pod %s: %s", p.Name, limited(o.Told.Waits, messageMax/2))
		case p.Spec.NodeName == "" && unscheduled(p) == nil:
			return fmt.Sprintf("; pod %s has no node, and no scheduler has said why: does its scheduler %q run?", p.Name, limited(p.Spec.SchedulerName, nameMax))
		}
	}
	return ""
}
