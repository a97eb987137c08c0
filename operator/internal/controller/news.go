package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Bounds of the time between two reads of the events of a job that has not started.
const (
	newsAgain = 10 * time.Second
	newsMost  = 2 * time.Minute
)

// newsPace returns the time between two reads of events. It grows with the time that
// the job has been Pending, since many jobs may wait for hours.
func newsPace(plan *verdict.Plan, now time.Time) time.Duration {
	c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionPending)
	if c == nil {
		return newsAgain
	}
	return min(max(newsAgain, now.Sub(c.LastTransitionTime.Time)/8), newsMost)
}

// Bounds of reading events: events per object, and jobs whose events are kept.
const (
	newsMax  = 100
	newsJobs = 1024
)

// heard holds what events say about jobs that do not run yet.
type heard struct {
	mu sync.Mutex // guards the field of
	of map[types.UID]told
}

type told struct {
	verdict.Told
	attempt int32
	at      time.Time
}

// clarify reads the events about a job or pod that waits for an unknown reason, and
// plans again with them.
func (r *Reconciler) clarify(ctx context.Context, o *verdict.Observation, plan verdict.Plan) verdict.Plan {
	job, pod, left := verdict.Unclear(o, &plan)
	switch {
	case left > 0:
		plan.Requeue = earlier(plan.Requeue, left)
		return plan
	case !job && pod == nil:
		return plan
	}
	fresh, pace := r.heard.age(o), newsPace(&plan, o.Now)
	if fresh >= pace {
		fresh, o.Told = 0, verdict.Told{}
		switch {
		case job && o.Batch == nil:
			o.Told.Refusal = r.newsOf(ctx, o.Job, verdict.EventRefused, "")
		case job:
			o.Told.Refusal = r.newsOf(ctx, o.Batch, "FailedCreate", "")
			o.Told.Remedy = r.remedy(ctx, o)
		}
		if pod != nil {
			o.Told.Pod, o.Told.Waits = pod.Name, r.awaits(ctx, pod, o.Now)
		}
		r.heard.note(o)
	}
	if plan = verdict.Next(o); plan.Action == verdict.Apply {
		plan.Requeue = earlier(plan.Requeue, pace-fresh)
	}
	return plan
}

// remedy returns how to resolve a refusal of pods. It needs the Job's template, which
// the caches do not keep.
func (r *Reconciler) remedy(ctx context.Context, o *verdict.Observation) string {
	if !verdict.Speaks(o.Told.Refusal) {
		return ""
	}
	batch := new(batchv1.Job)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.Batch), batch); err != nil {
		return verdict.Remedy(o.Told.Refusal, nil)
	}
	return verdict.Remedy(o.Told.Refusal, &batch.Spec.Template.Spec)
}

// awaits returns what a pod that has not started waits for. It asks the sidecar before
// it reads events, because events only report a failed probe; a node that does not
// exist causes no events.
func (r *Reconciler) awaits(ctx context.Context, p *corev1.Pod, now time.Time) string {
	if text := r.nodes.unclaimed(ctx, r.Live, p, now); text != "" {
		return text
	}
	if r.Starting != nil && verdict.Awaits(p) {
		if text := r.Starting.Awaits(ctx, p); text != "" {
			return text
		}
	}
	return r.newsOf(ctx, p, "", "")
}

// known returns what was read of the events of a job's attempt; the zero value if
// nothing was read.
func (n *heard) known(o *verdict.Observation) verdict.Told {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.of[o.Job.UID]; t.attempt == verdict.AttemptOf(o.Job) {
		return t.Told
	}
	return verdict.Told{}
}

// age returns the time since the events were read; newsMost if they have to be read.
func (n *heard) age(o *verdict.Observation) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.of[o.Job.UID]
	if age := o.Now.Sub(t.at); ok && t.attempt == verdict.AttemptOf(o.Job) && age >= 0 { // the clock may have been set back
		return age
	}
	return newsMost
}

// note stores the result of a read.
func (n *heard) note(o *verdict.Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.of) >= newsJobs {
		clear(n.of) // the events of each job are then read once more
	}
	if n.of == nil {
		n.of = map[types.UID]told{}
	}
	n.of[o.Job.UID] = told{o.Told, verdict.AttemptOf(o.Job), o.Now}
}

// newsOf returns the text of an event about an object, read from the API server and not
// from the caches. If reason is set, it is the last event with that reason; otherwise
// the last warning, or the last event if there is no warning. If container is set, only
// events about the container of that name count, not about an init container of the
// name or about other containers. The result is empty if there is no such event or
// events may not be read.
func (r *Reconciler) newsOf(ctx context.Context, about client.Object, reason, container string) string {
	selected := fields.Set{"involvedObject.uid": string(about.GetUID())}
	if reason != "" {
		selected["reason"] = reason
	}
	all := new(corev1.EventList)
	err := r.Live.List(ctx, all, client.InNamespace(about.GetNamespace()), client.MatchingFields(selected), client.Limit(newsMax))
	if err != nil {
		logUnreadable(ctx, "events", "a status does not quote what the scheduler, kubelets and webhooks say", about.GetName(), err)
		return ""
	}
	var last *corev1.Event
	for i := range all.Items {
		e := &all.Items[i]
		if reason == "" && over(e, all.Items) || container != "" && e.InvolvedObject.FieldPath != "spec.containers{"+container+"}" {
			continue
		}
		if last == nil || weighs(e) > weighs(last) || weighs(e) == weighs(last) && happened(e).After(happened(last)) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return note(strings.TrimSpace(last.Reason + ": " + last.Message))
}

// done are the reasons of events of a pod that report a completed step. The pod no
// longer waits for such a step.
var done = []string{"Scheduled", "Pulled", "Created", "Started"}

// over reports whether an event of a pod is about a step that is complete. all are the
// events of the pod.
func over(e *corev1.Event, all []corev1.Event) bool {
	if slices.Contains(done, e.Reason) {
		return true
	}
	return e.Reason == "Pulling" && slices.ContainsFunc(all, func(o corev1.Event) bool {
		return o.Reason == "Pulled" && o.InvolvedObject.FieldPath == e.InvolvedObject.FieldPath && !happened(&o).Before(happened(e))
	})
}

// weighs ranks events: warnings before others. A failed probe ranks below other
// warnings, since it only shows that the pod is not ready.
func weighs(e *corev1.Event) int {
	switch {
	case e.Type != corev1.EventTypeWarning:
		return 0
	case e.Reason == "Unhealthy":
		return 1
	}
	return 2
}

// happened returns the time at which an event was last seen.
func happened(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}
