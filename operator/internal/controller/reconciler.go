// Package controller runs MPIJobs: it observes what is there of a job, asks
// verdict what to do, does it, and writes the status once.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Name is the controller's, as in managedBy.
const Name = names.Group + "/mpijob-controller"

// fieldOwner owns the fields that the operator applies.
const fieldOwner = "outrigger-operator"

// Transports tells which transports a running pod uses; nil while not known.
type Transports interface {
	InUse(ctx context.Context, p *corev1.Pod) []string
}

// Starting tells what the sidecar of a pod waits for that is not ready; empty: it is not
// known.
type Starting interface {
	Awaits(ctx context.Context, p *corev1.Pod) string
}

// Keys are the authorities of jobs, and that of their issuer.
type Keys interface {
	ID(job types.UID, attempt int32) string
	Authority(id string) (*pki.Authority, error)
	CA() ([]byte, error)
}

// Reconciler brings MPIJobs from what is there to what is asked for.
type Reconciler struct {
	Client     client.Client
	Live       client.Reader // past the caches
	Events     events.EventRecorder
	Options    desired.Options
	Keys       Keys   // of jobs' authorities
	IssuerURL  string // where sidecars get their certificates
	Transports Transports
	Waiters    Waiters  // nil: no sidecar can be asked
	Starting   Starting // nil: as above
	Failures   Failures // nil: as above
	Metrics    *Metrics // nil: none
	NoWebhook  bool     // pods of other controllers get no sidecars here
	Now        func() time.Time

	recent recent
	watch  watch
	slow   slow
	heard  heard
	nodes  nodes
	queues queues
}

// Reconcile looks at one job, unless calls for jobs of its namespace take time enough.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t, ok := r.slow.begin(req.Namespace)
	if !ok {
		return ctrl.Result{RequeueAfter: putOff()}, nil
	}
	defer t.end()
	result, err := r.look(context.WithValue(ctx, turnKey{}, t), req)
	if errors.Is(err, errGivenUp) {
		return ctrl.Result{RequeueAfter: putOff()}, nil
	}
	if u := new(unwritten); errors.As(err, &u) {
		return ctrl.Result{RequeueAfter: u.later(result.RequeueAfter)}, nil
	}
	return result, err
}

// look looks at one job.
func (r *Reconciler) look(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job := new(v1alpha1.MPIJob)
	if err := r.Client.Get(ctx, req.NamespacedName, job); err != nil {
		r.recent.forget(req.NamespacedName)
		r.watch.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.recent.outdated(job) {
		return ctrl.Result{}, nil // what was written arrives, and is looked at then
	}
	if job.DeletionTimestamp != nil || job.Spec.ManagedBy != "" && job.Spec.ManagedBy != Name {
		r.recent.forget(req.NamespacedName)
		r.watch.forget(req.NamespacedName)
		return ctrl.Result{}, nil // its objects go with it; or somebody else's
	}
	o, profile, err := r.observe(ctx, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, err := r.plan(ctx, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	a := &desired.Attempt{Job: job, Number: verdict.AttemptOf(job), Options: r.Options}
	if profile != nil {
		a.Profile = profile.Spec
	}
	// What is due soon, such as a deadline, does not wait for the next try of something else.
	due, p := plan.Requeue, new(permanent)
	switch left, cause := r.recent.trouble(job, plan.Action, o.Now); {
	case left <= 0:
		err = r.carryOut(ctx, &plan, o, a)
	case errors.As(cause, &p): // that has been told
		// The news is mostly that the status tells of it, which mends nothing: the
		// next try is when the first look said.
		if hold(o, &plan, p); o.Batch != nil {
			plan.Requeue = left
		}
	default:
		return ctrl.Result{RequeueAfter: earlier(left, due)}, r.tell(ctx, o, &plan, cause)
	}
	switch {
	case err != nil && !apierrors.IsConflict(err):
		now := r.Now()
		r.recent.failed(job, plan.Action, err, now.Sub(o.Now), now)
		told := r.tell(ctx, o, &plan, err)
		if errors.As(told, new(*unwritten)) {
			told = nil // when the action is tried again, which is not to wait for this
		}
		return ctrl.Result{}, errors.Join(err, told)
	case err == nil && plan.Action != verdict.Delete:
		err = r.writeStatus(ctx, job, &plan)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{}, nil // it has changed, and is looked at again when that is heard of
	}
	return ctrl.Result{RequeueAfter: earlier(plan.Requeue, due)}, err
}

// earlier is the shorter of two times to the next look; 0: there is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// plan is what to do with a job as it was observed. One that has failed is looked at
// once more.
func (r *Reconciler) plan(ctx context.Context, o *verdict.Observation) (verdict.Plan, error) {
	o.Noticed = r.recent.noticed(o.Job, verdict.AttemptOf(o.Job), verdict.Sign(o), o.Now)
	o.Missing = r.recent.absent(o.Job, verdict.AttemptOf(o.Job), verdict.Absent(o), o.Now)
	o.Told = r.heard.known(o)
	o.Said = r.sayings(ctx, o)
	look := r.watchWaits(ctx, o)
	plan := verdict.Next(o)
	if plan.Reads != "" && r.nodes.see(ctx, r.Live, plan.Reads, o.Now).lost {
		o.Lost = plan.Reads
		plan = verdict.Next(o)
	}
	// An end that the API server refuses is looked at as rarely as it is tried.
	if verdict.Fails(o, &plan) && !r.recent.troubles(o.Job, plan.Action, o.Now) {
		if verdict.Overdue(&plan) && (o.Batch == nil || desired.CauseOf(o.Batch) == nil) {
			r.explain(ctx, o)
		}
		if p := verdict.Hooked(o, &plan); p != nil {
			o.Hook = verdict.Hook{Pod: p.Name, Text: r.newsOf(ctx, p, "FailedPostStartHook", o.ApplicationName(p))}
		}
		// Pods end when their Job is suspended, and may be heard of first.
		var err error
		if plan, err = r.again(ctx, o); err != nil {
			return plan, err
		}
	}
	if plan = r.clarify(ctx, o, plan); plan.Action == verdict.Apply {
		plan.Requeue = earlier(plan.Requeue, look)
	}
	return plan, nil
}

// carryOut does what the plan says. What only a person can mend goes into the
// status, and is no error.
func (r *Reconciler) carryOut(ctx context.Context, plan *verdict.Plan, o *verdict.Observation, a *desired.Attempt) error {
	err := r.act(ctx, plan, o, a)
	p := new(permanent)
	switch {
	case err == nil:
		r.recent.went(o.Job, plan.Action)
		return nil
	case !errors.As(err, &p):
		return err
	}
	hold(o, plan, p)
	r.recent.refused(o, plan.Action, p, r.Now())
	if o.Batch != nil { // its conditions say how it goes, and it goes on
		r.Events.Eventf(o.Job, nil, corev1.EventTypeWarning, reasonChangeRefused, "ChangeJob", "%s", note("the job goes on as it was; what was changed cannot be had: "+p.Error()))
	}
	log.FromContext(ctx).Info("the job cannot be made", "reason", p.reason, "cause", p.Error(), "again", plan.Requeue)
	return nil
}

// hold puts an obstacle into a plan.
func hold(o *verdict.Observation, plan *verdict.Plan, p *permanent) {
	verdict.Hold(o, plan, p.reason, p.Error())
	if p.passes {
		verdict.Soon(o, plan)
	}
}

// reasonChangeRefused is that of the Event of a running job of which a change cannot be
// made: a budget whose name another one has, a label that a queue refuses.
const reasonChangeRefused = "ChangeRefused"

// tell says in the status of a job why it does not begin, why it is not changed as it
// asks, or why it does not end although it has failed: a webhook of the API server is
// down, or the API server itself has an error. It is tried again, the more rarely the
// longer it lasts (recent.failed).
func (r *Reconciler) tell(ctx context.Context, o *verdict.Observation, plan *verdict.Plan, cause error) error {
	switch {
	case !errors.As(cause, new(apierrors.APIStatus)):
		return nil
	case plan.Action == verdict.Apply && o.Batch == nil:
		verdict.Hold(o, plan, v1alpha1.ReasonAPIError, cause.Error())
	case plan.Action == verdict.Apply:
		verdict.Unchanged(o, plan, cause.Error())
	case (plan.Action == verdict.Stop || plan.Action == verdict.Remove) && !verdict.Finished(&o.Job.Status):
		verdict.Unended(o, plan, cause.Error())
	default:
		return nil
	}
	if err := r.writeStatus(ctx, o.Job, plan); !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// permanent is an error that trying again at once does not mend.
type permanent struct {
	reason string
	cause  error
	passes bool // without a change of the job
}

func (p *permanent) Error() string { return p.cause.Error() }
func (p *permanent) Unwrap() error { return p.cause }

// observe collects what is there, from the caches.
func (r *Reconciler) observe(ctx context.Context, job *v1alpha1.MPIJob) (*verdict.Observation, *v1alpha1.FabricProfile, error) {
	o := &verdict.Observation{Job: job, NoWebhook: r.NoWebhook, NoQueue: r.unqueued(job), Now: r.Now()}
	attempt := client.ObjectKey{Namespace: job.Namespace, Name: desired.AttemptName(job.Name, verdict.AttemptOf(job))}
	batch := new(batchv1.Job)
	err := r.Client.Get(ctx, attempt, batch)
	if apierrors.IsNotFound(err) && job.Status.JobName == attempt.Name && !verdict.Finished(&job.Status) && !r.recent.gone(job, attempt.Name) {
		// Gone, or made a moment ago.
		if err = r.Live.Get(ctx, attempt, batch); apierrors.IsNotFound(err) {
			r.recent.missed(job, attempt.Name)
		}
	}
	switch {
	case err == nil:
		if !owned(batch, job) {
			break // apply will say so
		}
		o.Batch = batch
	case !apierrors.IsNotFound(err):
		return nil, nil, err
	}
	// Nobody changes what is observed: copies of thousands of pods for each look
	// at a job would be most of the operator's work.
	pods := new(corev1.PodList)
	if err := r.Client.List(ctx, pods, client.InNamespace(job.Namespace), OfJob(job.Name), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	for _, p := range r.recent.remembered(job, pods.Items) {
		if verdict.Of(p, job, o.Batch) {
			o.Pods = append(o.Pods, p)
		}
	}
	for i := range pods.Items {
		switch p := &pods.Items[i]; {
		case verdict.Of(p, job, o.Batch):
			o.Pods = append(o.Pods, p)
		case verdict.InTheWay(p, job, o.Batch):
			o.Before = append(o.Before, p)
		}
	}
	o.Transports = r.transports(ctx, o)
	if job.Spec.ProfileName == "" {
		return o, nil, nil
	}
	profile := new(v1alpha1.FabricProfile)
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: job.Spec.ProfileName}, profile)
	if apierrors.IsNotFound(err) {
		o.NoProfile = true
		return o, nil, nil
	}
	return o, profile, err
}

// again judges with the Job as it is now.
func (r *Reconciler) again(ctx context.Context, o *verdict.Observation) (verdict.Plan, error) {
	if o.Batch != nil {
		batch := new(batchv1.Job)
		switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(o.Batch), batch); {
		case err == nil:
			o.Batch = batch
		case apierrors.IsNotFound(err):
			o.Batch = nil
		default:
			return verdict.Plan{}, err
		}
	}
	return verdict.Next(o), nil
}

// act does what the plan says.
func (r *Reconciler) act(ctx context.Context, plan *verdict.Plan, o *verdict.Observation, a *desired.Attempt) error {
	switch plan.Action {
	case verdict.Apply:
		if err := r.apply(ctx, o, a); err != nil {
			return err
		}
		plan.Requeue = earlier(plan.Requeue, r.keep(ctx, o, a))
		return nil
	case verdict.Remove:
		return r.remove(ctx, o, a)
	case verdict.Stop:
		return r.stop(ctx, plan, o, a)
	case verdict.Delete:
		return r.delete(ctx, o.Job, client.PropagationPolicy(metav1.DeletePropagationBackground))
	case verdict.Wait:
	}
	return nil
}

// owned reports whether a job's controller made an object.
func owned(object client.Object, job *v1alpha1.MPIJob) bool {
	return metav1.IsControlledBy(object, job)
}

// only is a deletion's condition: this object, and no later one of its name.
func only(object client.Object) client.Preconditions {
	uid := object.GetUID()
	return client.Preconditions{UID: &uid}
}

// conflict is what to say of an object in the way. A person who takes it away wants the
// job to go on, and nobody tells the operator: it is looked for soon.
func conflict(kind string, object client.Object, job *v1alpha1.MPIJob) error {
	if c := metav1.GetControllerOf(object); c != nil && c.Kind == v1alpha1.Kind.Kind && c.Name == job.Name {
		return &permanent{v1alpha1.ReasonNameConflict, fmt.Errorf("%s %s is of an earlier MPIJob of this name, and is being removed", kind, object.GetName()), true}
	}
	return &permanent{v1alpha1.ReasonNameConflict, fmt.Errorf("%s %s exists and does not belong to this MPIJob: rename one of them, or delete it", kind, object.GetName()), true}
}
