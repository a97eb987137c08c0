package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// apply makes the attempt's objects, the Job last. They are made once; their contents
// are not compared again: a profile that has changed, or an operator with another
// image, takes effect at the next attempt.
func (r *Reconciler) apply(ctx context.Context, o *verdict.Observation, a *desired.Attempt) error {
	if a.Job.Spec.PodManagement == v1alpha1.PodsExternal {
		// An earlier version of the operator may have made a document that pods no
		// longer read.
		if verdict.Prepared(o.Job) && (verdict.Ran(o.Job) || r.recent.prepared(o.Job)) {
			return nil
		}
		err := r.prepare(ctx, a)
		if err == nil {
			r.recent.prepare(o.Job)
		}
		return err
	}
	if o.Batch != nil {
		return r.patchJob(ctx, o.Batch, a)
	}
	whole, err := r.whole(ctx, a)
	if err != nil {
		return client.IgnoreNotFound(err) // the watch reports the deletion
	}
	whole.Bounds = inject.BoundsOf(Limits(ctx, r.Live, a.Job.Namespace))
	if whole.UIDs, err = Users(ctx, r.Live, a.Job.Namespace); err != nil {
		return err
	}
	if _, err := whole.BatchJob(); err != nil { // before any object is made
		return &permanent{v1alpha1.ReasonInvalid, err, false}
	}
	if err := r.prepare(ctx, a); err != nil {
		return err
	}
	whole.Peers = a.Peers
	job, err := whole.BatchJob()
	if err != nil {
		return &permanent{v1alpha1.ReasonInvalid, err, false}
	}
	r.recent.missed(a.Job, "")
	made, err := r.create(ctx, job, a.Job)
	if made {
		r.Events.Eventf(a.Job, nil, corev1.EventTypeNormal, "JobCreated", "CreateJob", "created Job %s: %d pods for %d ranks", job.Name, a.Pods(), a.Job.Spec.Ranks)
		if o.NoQueue {
			r.Events.Eventf(a.Job, nil, corev1.EventTypeWarning, "QueueMissing", "CreateJob", "%s", verdict.TextNoQueue)
		}
	}
	return ofSidecar(err, job)
}

// ofSidecar adds to an error about a container of ours, which the API server names by
// its index among the pod's init containers, the fields of the MPIJob that set its
// resources.
func ofSidecar(err error, job *batchv1.Job) error {
	p := new(permanent)
	if !errors.As(err, &p) {
		return err
	}
	all := job.Spec.Template.Spec.InitContainers
	for i := range all {
		if name := all[i].Name; (name == names.ContainerSidecar || name == names.ContainerInstall) && strings.Contains(err.Error(), fmt.Sprintf("initContainers[%d].resources", i)) {
			return &permanent{p.reason, fmt.Errorf("%w; that is container %s, whose requests and limits are sidecar.resources, of the MPIJob or of the chart", p.cause, name), p.passes}
		}
	}
	return err
}

// limitsMax bounds the number of LimitRanges that are read of a namespace.
const limitsMax = 100

// Limits reads the LimitRanges of a namespace from the API server, not from the caches.
// If they cannot be read, it returns none: sidecars are then made with the defaults,
// and the API server's refusal is reported.
func Limits(ctx context.Context, live client.Reader, namespace string) []corev1.LimitRange {
	all := new(corev1.LimitRangeList)
	if err := live.List(ctx, all, client.InNamespace(namespace), client.Limit(limitsMax)); err != nil {
		logUnreadable(ctx, "limitranges", "sidecars do not follow the defaults and limits of their namespace", namespace, err)
		return nil
	}
	return all.Items
}

// Users reads the user ids that a namespace allows for its pods from the API server,
// not from the caches. If the operator may not read the namespace, it returns none, and
// the API server's refusal is reported.
func Users(ctx context.Context, live client.Reader, namespace string) (inject.UIDs, error) {
	n := new(corev1.Namespace)
	switch err := live.Get(ctx, client.ObjectKey{Name: namespace}, n); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		logUnreadable(ctx, "namespaces", "sidecars do not take a user of their namespace's range", namespace, err)
		return inject.UIDs{}, nil
	case err != nil:
		return inject.UIDs{}, err
	}
	return inject.UIDsOf(n.Annotations), nil
}

// whole returns the attempt with the job's complete template and annotations, of which
// the cache keeps only a small part. If the job has changed since it was observed,
// whole returns a conflict; the watch then starts another reconciliation.
func (r *Reconciler) whole(ctx context.Context, a *desired.Attempt) (*desired.Attempt, error) {
	live := new(v1alpha1.MPIJob)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(a.Job), live); err != nil {
		return nil, err
	}
	if live.UID != a.Job.UID || live.Generation != a.Job.Generation {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("mpijobs").GroupResource(), a.Job.Name, errors.New("it has changed since it was observed"))
	}
	job := *a.Job
	job.Spec.Template, job.Annotations = live.Spec.Template, live.Annotations
	w := *a
	w.Job = &job
	return &w, nil
}

// patchJob applies changes of the MPIJob to the fields of a Job that may change. It
// does so once for each change of the MPIJob, so that other controllers can change the
// same fields afterwards.
func (r *Reconciler) patchJob(ctx context.Context, batch *batchv1.Job, a *desired.Attempt) error {
	if batch.DeletionTimestamp != nil || a.Steered(batch) {
		return nil
	}
	// A budget that cannot be made does not hold up the job; it is tried again later.
	lacking := r.budget(ctx, a)
	patch := a.Steering(lacking == nil)
	if err := refused(r.change(ctx, batch, patch)); err != nil {
		return err
	}
	return lacking
}

// change patches a Job, unless it is gone. The patch names the Job's UID, so a later
// Job of the same name, which may belong to another owner, stays unchanged.
func (r *Reconciler) change(ctx context.Context, batch *batchv1.Job, patch desired.Patch) error {
	text, err := patch.Of(batch)
	if err != nil {
		return err
	}
	err = r.write(ctx, "patch Job", func(ctx context.Context) error {
		return r.Client.Patch(ctx, batch.DeepCopy(), client.RawPatch(types.MergePatchType, text), client.FieldOwner(fieldOwner))
	})
	if apierrors.IsNotFound(err) || replaced(err) {
		return nil // the watch reports it
	}
	return err
}

// replaced reports whether a patch was refused because the object with the UID that it
// names no longer exists.
func replaced(err error) bool {
	if s := apierrors.APIStatus(nil); apierrors.IsInvalid(err) && errors.As(err, &s) && s.Status().Details != nil {
		return slices.ContainsFunc(s.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
	}
	return false
}

// prepare makes the objects that the pods need to start. It sets how the pods find each
// other (Attempt.Peers) from the job document, which may exist already.
func (r *Reconciler) prepare(ctx context.Context, a *desired.Attempt) error {
	id, err := r.identity(a)
	if err != nil {
		return err
	}
	if err := r.document(ctx, a, id); err != nil {
		return err
	}
	if a.Named() {
		if err := r.service(ctx, a); err != nil {
			return err
		}
	}
	if policy := a.NetworkPolicy(); policy != nil {
		if _, err := r.create(ctx, policy, a.Job); err != nil {
			return err
		}
	}
	// An earlier attempt may have a budget from before the MPIJob allowed disruptions.
	// In that case the MPIJob's generation is larger than 1.
	if err := r.group(ctx, a); err != nil || a.DisruptionBudget() == nil && a.Job.Generation <= 1 {
		return err
	}
	return r.budget(ctx, a)
}

// service makes the Service that gives names to the job's pods. If the job's Service
// exists, it may have been merged with a Service that selects other pods; its selector
// is then restored.
func (r *Reconciler) service(ctx context.Context, a *desired.Attempt) error {
	service := a.Service()
	if made, err := r.create(ctx, service, a.Job); made || err != nil {
		return err
	}
	return r.selects(ctx, service, a)
}

// selects restores the selector of the job's Service if it does not select the job's
// pods.
func (r *Reconciler) selects(ctx context.Context, service *corev1.Service, a *desired.Attempt) error {
	selector := map[string]any{}
	for name := range service.Spec.Selector {
		selector[name] = nil
	}
	for name, value := range a.Service().Spec.Selector {
		if service.Spec.Selector[name] == value {
			delete(selector, name)
		} else {
			selector[name] = value
		}
	}
	if len(selector) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID}, "spec": map[string]any{"selector": selector}})
	if err != nil {
		return err
	}
	return refused(r.write(ctx, "patch Service", func(ctx context.Context) error {
		return r.Client.Patch(ctx, service, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
	}))
}

// group makes the attempt's PodGroup, if the job asks for one.
func (r *Reconciler) group(ctx context.Context, a *desired.Attempt) error {
	group := a.PodGroup()
	if group == nil || a.Job.Spec.PodManagement == v1alpha1.PodsExternal {
		return nil // the controller that makes the pods makes their group
	}
	_, err := r.create(ctx, group, a.Job)
	if meta.IsNoMatchError(err) {
		return &permanent{v1alpha1.ReasonInvalid, fmt.Errorf("runPolicy.gang is %s, but the cluster has no %s: install its scheduler, or leave gang out", a.Job.Spec.RunPolicy.Gang, group.GroupVersionKind()), false}
	}
	return err
}

// budget makes the job's disruption budget, or deletes it if the job does not ask for
// one.
func (r *Reconciler) budget(ctx context.Context, a *desired.Attempt) error {
	if b := a.DisruptionBudget(); b != nil {
		_, err := r.create(ctx, b, a.Job)
		return err
	}
	return r.drop(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named(a, a.Job.Name)}, a.Job)
}

func named(a *desired.Attempt, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.Job.Namespace, Name: name}
}

// drop deletes an object of the job. An object of the same name with another owner
// stays: the right to create MPIJobs must not become a right to delete other objects.
func (r *Reconciler) drop(ctx context.Context, object client.Object, job *v1alpha1.MPIJob) error {
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !owned(object, job) {
		return nil
	}
	return r.deleteObject(ctx, object)
}

// deleteObject deletes an object and adds its kind and name to the error.
func (r *Reconciler) deleteObject(ctx context.Context, object client.Object, how ...client.DeleteOption) error {
	err := r.delete(ctx, object, how...)
	if err == nil {
		return nil
	}
	kind, unknown := r.Client.GroupVersionKindFor(object)
	if unknown != nil {
		return errors.Join(err, unknown)
	}
	return fmt.Errorf("removing %s %s: %w", kind.Kind, object.GetName(), err)
}

// delete deletes this object, but no later one of the same name.
func (r *Reconciler) delete(ctx context.Context, object client.Object, how ...client.DeleteOption) error {
	return client.IgnoreNotFound(r.write(ctx, fmt.Sprintf("delete %T", object), func(ctx context.Context) error {
		return r.Client.Delete(ctx, object, append(how, only(object))...)
	}))
}

// create makes an object. If this job's object exists already, create reads it into
// object and returns no error. If an object of the same name has another owner, create
// returns a conflict.
func (r *Reconciler) create(ctx context.Context, object client.Object, job *v1alpha1.MPIJob) (made bool, err error) {
	err = r.write(ctx, fmt.Sprintf("create %T", object), func(ctx context.Context) error {
		return r.Client.Create(ctx, object, client.FieldOwner(fieldOwner))
	})
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, refused(err)
	}
	key, kind := client.ObjectKeyFromObject(object), object.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(object).Elem().SetZero() // a map in object would otherwise keep the keys of the object to be made
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetGroupVersionKind(kind) // an unstructured object has no other record of its kind
	}
	if err := r.Live.Get(ctx, key, object); err != nil {
		return false, err
	}
	if !owned(object, job) {
		kind, err := r.Client.GroupVersionKindFor(object) // the read has cleared the kind in the object
		if err != nil {
			return false, err
		}
		return false, conflict(kind.Kind, object, job)
	}
	return false, nil
}

// identity returns the identity of the attempt. It is the same at every call.
func (r *Reconciler) identity(a *desired.Attempt) (*desired.Identity, error) {
	id := &desired.Identity{ID: r.Keys.ID(a.Job.UID, a.Number)}
	authority, err := r.Keys.Authority(id.ID)
	if err != nil {
		return nil, err
	}
	ca, err := r.Keys.CA()
	if err != nil {
		return nil, err
	}
	id.CA = authority.CA()
	id.Issuer = bootstrap.Issuer{URL: r.IssuerURL, CA: string(ca), TokenFile: names.TokenDir + "/" + names.TokenFile}
	return id, nil
}

// document makes the job document. An existing document that was made before the
// issuer's secret was replaced names an identity that is no longer valid; it is
// deleted.
func (r *Reconciler) document(ctx context.Context, a *desired.Attempt, id *desired.Identity) error {
	document, err := a.ConfigMap(id)
	if err != nil {
		return &permanent{v1alpha1.ReasonInvalid, err, false}
	}
	made, err := r.create(ctx, document, a.Job)
	if err != nil {
		return err
	}
	if made || desired.Names(document, id.ID) {
		a.Peers = desired.PeersOf(document)
		return nil
	}
	if document.DeletionTimestamp != nil { // a finalizer of another owner keeps it
		return &permanent{v1alpha1.ReasonNameConflict, fmt.Errorf("ConfigMap %s names another identity, and is being removed", document.Name), true}
	}
	if err := r.delete(ctx, document); err != nil {
		return err
	}
	return fmt.Errorf("ConfigMap %s named another identity and was deleted: it is made again", document.Name)
}

// refused marks errors that only a change by the user or an administrator resolves as
// permanent.
func refused(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &permanent{v1alpha1.ReasonInvalid, err, false}
	}
	return err
}

// remove deletes an attempt's Job, its pods, its document and its PodGroup.
func (r *Reconciler) remove(ctx context.Context, o *verdict.Observation, a *desired.Attempt) error {
	if o.Batch != nil && o.Batch.DeletionTimestamp != nil {
		return nil // it is being deleted
	}
	if err := r.drop(ctx, &corev1.ConfigMap{ObjectMeta: named(a, a.DocumentName())}, a.Job); err != nil {
		return err
	}
	if group := a.PodGroup(); group != nil {
		if err := r.drop(ctx, group, a.Job); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	if o.Batch == nil {
		return nil
	}
	return r.deleteObject(ctx, o.Batch, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// stop ends the running pods of a finished job. Pods that have ended stay, so that
// their logs can be read. The disruption budget is deleted.
func (r *Reconciler) stop(ctx context.Context, plan *verdict.Plan, o *verdict.Observation, a *desired.Attempt) error {
	if verdict.Finished(&o.Job.Status) {
		return nil // this was done before the status was set
	}
	switch {
	case o.Batch == nil || verdict.Over(o.Batch):
	case verdict.Held(o):
		// A suspended Job ignores a deadline. It has no running pods, and its queue
		// could start some later, so it is deleted.
		if err := r.delete(ctx, o.Batch, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("taking Job %s from its queue: %w", o.Batch.Name, err)
		}
	case desired.CauseOf(o.Batch) != nil: // it is ending
	default:
		// A Job past its deadline ends its running pods and keeps the ended ones. This
		// also holds for a successful job if injected or user sidecars keep pods
		// running.
		if err := r.change(ctx, o.Batch, desired.Ending(verdict.Cause(plan))); err != nil {
			return fmt.Errorf("ending Job %s: %w", o.Batch.Name, err)
		}
	}
	if a.DisruptionBudget() == nil {
		return nil
	}
	return r.drop(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named(a, a.Job.Name)}, a.Job)
}
