// Package controller reconciles MPIJobs. It observes the objects of a job, has package
// verdict plan the next action, executes it, and writes the status at most once. It
// owns all calls to the API server for jobs, the bounds on those calls (slow.go,
// trouble.go), the requests to sidecars (ask.go, waits.go, said.go), the manager with
// its caches and servers (manager.go, serve.go), and the operator's metrics.
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

// Name is the controller's name, as in spec.managedBy.
const Name = names.Group + "/mpijob-controller"

// fieldOwner is the field manager of the operator's writes.
const fieldOwner = "outrigger-operator"

// Transports returns the transports that a running pod uses; nil if not known.
type Transports interface {
	InUse(ctx context.Context, p *corev1.Pod) []string
}

// Starting returns what the sidecar of a pod that is not ready waits for; empty if not
// known.
type Starting interface {
	Awaits(ctx context.Context, p *corev1.Pod) string
}

// Keys returns the certificate authorities of jobs, and that of the issuer.
type Keys interface {
	ID(job types.UID, attempt int32) string
	Authority(id string) (*pki.Authority, error)
	CA() ([]byte, error)
}

// Reconciler moves MPIJobs from their observed to their desired state.
type Reconciler struct {
	Client     client.Client
	Live       client.Reader // reads from the API server, not from the caches
	Events     events.EventRecorder
	Options    desired.Options
	Keys       Keys   // certificate authorities of jobs
	IssuerURL  string // where sidecars get their certificates
	Transports Transports
	Waiters    Waiters  // nil: sidecars are not asked
	Starting   Starting // nil: as above
	Failures   Failures // nil: as above
	Metrics    *Metrics // nil: not counted
	NoWebhook  bool     // the webhook is off: pods of other controllers get no sidecars
	Now        func() time.Time

	recent recent
	watch  watch
	slow   slow
	heard  heard
	nodes  nodes
	queues queues
}

// Reconcile reconciles one job, unless slow calls for jobs of its namespace already
// hold all slots of the namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	t, ok := r.slow.begin(req.Namespace)
	if !ok {
		return ctrl.Result{RequeueAfter: putOff()}, nil
	}
	defer t.release()
	result, err := r.reconcileOnce(context.WithValue(ctx, turnKey{}, t), req)
	if errors.Is(err, errGivenUp) {
		return ctrl.Result{RequeueAfter: putOff()}, nil
	}
	if u := new(unwritten); errors.As(err, &u) {
		return ctrl.Result{RequeueAfter: u.later(result.RequeueAfter)}, nil
	}
	return result, err
}

// reconcileOnce reconciles one job.
func (r *Reconciler) reconcileOnce(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job := new(v1alpha1.MPIJob)
	if err := r.Client.Get(ctx, req.NamespacedName, job); err != nil {
		r.recent.forget(req.NamespacedName)
		r.watch.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.recent.outdated(job) {
		return ctrl.Result{}, nil // the cache will receive the write and start another reconciliation
	}
	if job.DeletionTimestamp != nil || job.Spec.ManagedBy != "" && job.Spec.ManagedBy != Name {
		r.recent.forget(req.NamespacedName)
		r.watch.forget(req.NamespacedName)
		return ctrl.Result{}, nil // the garbage collector deletes its objects, or another controller manages it
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
	// A deadline that is due soon does not wait for the next try of another action.
	due, p := plan.Requeue, new(permanent)
	switch left, cause := r.recent.trouble(job, plan.Action, o.Now); {
	case left <= 0:
		err = r.execute(ctx, &plan, o, a)
	case errors.As(cause, &p): // the status has it
		// This reconciliation was mostly started by the write of that status, which
		// resolves nothing. The next try stays at the time that was set first.
		if block(o, &plan, p); o.Batch != nil {
			plan.Requeue = left
		}
	default:
		return ctrl.Result{RequeueAfter: earlier(left, due)}, r.reportError(ctx, o, &plan, cause)
	}
	switch {
	case err != nil && !apierrors.IsConflict(err):
		now := r.Now()
		r.recent.failed(job, plan.Action, err, now.Sub(o.Now), now)
		told := r.reportError(ctx, o, &plan, err)
		if errors.As(told, new(*unwritten)) {
			told = nil // the action is tried again sooner than the status, and must not wait for it
		}
		return ctrl.Result{}, errors.Join(err, told)
	case err == nil && plan.Action != verdict.Delete:
		err = r.writeStatus(ctx, job, &plan)
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{}, nil // the job has changed, and the watch starts another reconciliation
	}
	return ctrl.Result{RequeueAfter: earlier(plan.Requeue, due)}, err
}

// earlier returns the shorter of two times to the next reconciliation; 0 means none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// plan returns the next action for a job as it was observed. Before a job is declared
// failed, its Job is read from the API server and the plan is made again.
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
	// If the API server refuses to end the job, this is repeated only as often as the
	// end is tried.
	if verdict.Fails(o, &plan) && !r.recent.troubles(o.Job, plan.Action, o.Now) {
		if verdict.Overdue(&plan) && (o.Batch == nil || desired.CauseOf(o.Batch) == nil) {
			r.explain(ctx, o)
		}
		if p := verdict.Hooked(o, &plan); p != nil {
			o.Hook = verdict.Hook{Pod: p.Name, Text: r.newsOf(ctx, p, "FailedPostStartHook", o.ApplicationName(p))}
		}
		// Pods end when their Job is suspended, and the caches may show that before
		// they show the suspended Job.
		var err error
		if plan, err = r.replan(ctx, o); err != nil {
			return plan, err
		}
	}
	if plan = r.clarify(ctx, o, plan); plan.Action == verdict.Apply {
		plan.Requeue = earlier(plan.Requeue, look)
	}
	return plan, nil
}

// execute carries out the plan. An error that only a user or an administrator can
// resolve goes into the status, and is not returned.
func (r *Reconciler) execute(ctx context.Context, plan *verdict.Plan, o *verdict.Observation, a *desired.Attempt) error {
	err := r.act(ctx, plan, o, a)
	p := new(permanent)
	switch {
	case err == nil:
		r.recent.went(o.Job, plan.Action)
		return nil
	case !errors.As(err, &p):
		return err
	}
	block(o, plan, p)
	r.recent.refused(o, plan.Action, p, r.Now())
	if o.Batch != nil { // the conditions of a running job report its progress, and it continues
		r.Events.Eventf(o.Job, nil, corev1.EventTypeWarning, reasonChangeRefused, "ChangeJob", "%s", note("the job goes on as it was; what was changed cannot be had: "+p.Error()))
	}
	log.FromContext(ctx).Info("the job cannot be made", "reason", p.reason, "cause", p.Error(), "again", plan.Requeue)
	return nil
}

// block adds an obstacle to a plan.
func block(o *verdict.Observation, plan *verdict.Plan, p *permanent) {
	verdict.Hold(o, plan, p.reason, p.Error())
	if p.passes {
		verdict.Soon(o, plan)
	}
}

// reasonChangeRefused is the reason of the Event for a running job that cannot be
// changed, because the name of its budget is taken or a queue refuses a label, for
// example.
const reasonChangeRefused = "ChangeRefused"

// reportError writes to the status of a job why it does not start, is not changed, or
// does not end although it has failed: a webhook does not answer, or the API server has
// an error. The action is tried again with exponential back-off (recent.failed).
func (r *Reconciler) reportError(ctx context.Context, o *verdict.Observation, plan *verdict.Plan, cause error) error {
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

// permanent is an error that an immediate retry does not resolve.
type permanent struct {
	reason string
	cause  error
	passes bool // it can end without a change of the MPIJob
}

func (p *permanent) Error() string { return p.cause.Error() }
func (p *permanent) Unwrap() error { return p.cause }

// observe collects the objects of a job from the caches.
func (r *Reconciler) observe(ctx context.Context, job *v1alpha1.MPIJob) (*verdict.Observation, *v1alpha1.FabricProfile, error) {
	o := &verdict.Observation{Job: job, NoWebhook: r.NoWebhook, NoQueue: r.unqueued(job), Now: r.Now()}
	attempt := client.ObjectKey{Namespace: job.Namespace, Name: desired.AttemptName(job.Name, verdict.AttemptOf(job))}
	batch := new(batchv1.Job)
	err := r.Client.Get(ctx, attempt, batch)
	if apierrors.IsNotFound(err) && job.Status.JobName == attempt.Name && !verdict.Finished(&job.Status) && !r.recent.gone(job, attempt.Name) {
		// The Job is gone, or was made a moment ago and is not in the cache yet.
		if err = r.Live.Get(ctx, attempt, batch); apierrors.IsNotFound(err) {
			r.recent.missed(job, attempt.Name)
		}
	}
	switch {
	case err == nil:
		if !owned(batch, job) {
			break // apply reports it
		}
		o.Batch = batch
	case !apierrors.IsNotFound(err):
		return nil, nil, err
	}
	// Observed pods are read-only: copies of thousands of pods at every reconciliation
	// would be most of the operator's work.
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

// replan plans with the Job as the API server has it now.
func (r *Reconciler) replan(ctx context.Context, o *verdict.Observation) (verdict.Plan, error) {
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

// act carries out the action of a plan.
func (r *Reconciler) act(ctx context.Context, plan *verdict.Plan, o *verdict.Observation, a *desired.Attempt) error {
	switch plan.Action {
	case verdict.Apply:
		if err := r.apply(ctx, o, a); err != nil {
			return err
		}
		plan.Requeue = earlier(plan.Requeue, r.keepService(ctx, o, a))
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

// owned reports whether the job is the controller of an object.
func owned(object client.Object, job *v1alpha1.MPIJob) bool {
	return metav1.IsControlledBy(object, job)
}

// only returns the precondition of a deletion: this object, and no later one of its name.
func only(object client.Object) client.Preconditions {
	uid := object.GetUID()
	return client.Preconditions{UID: &uid}
}

// conflict returns the error for an object that is in the way. The operator does not
// watch such objects, so the error passes: the job is tried again soon after a user has
// deleted the object.
func conflict(kind string, object client.Object, job *v1alpha1.MPIJob) error {
	if c := metav1.GetControllerOf(object); c != nil && c.Kind == v1alpha1.Kind.Kind && c.Name == job.Name {
		return &permanent{v1alpha1.ReasonNameConflict, fmt.Errorf("%s %s is of an earlier MPIJob of this name, and is being removed", kind, object.GetName()), true}
	}
	return &permanent{v1alpha1.ReasonNameConflict, fmt.Errorf("%s %s exists and does not belong to this MPIJob: rename one of them, or delete it", kind, object.GetName()), true}
}
