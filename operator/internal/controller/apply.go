package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// annotationApplied is a hash of what was applied, so that an object which is
// as desired costs no call.
const annotationApplied = names.Group + "/applied"

// apply sees that the attempt's objects are there. Those that never change are
// made before the Job, and looked at again only while the Job is not there.
func (r *Reconciler) apply(ctx context.Context, o *verdict.Observation, a *desired.Attempt) error {
	if a.Job.Spec.PodManagement == v1alpha1.PodsExternal {
		if o.Job.Status.ObservedGeneration != 0 {
			return nil // made once, before others are told that it is there
		}
		return r.prepare(ctx, a)
	}
	job, err := a.BatchJob()
	if err != nil {
		return &permanent{v1alpha1.ReasonInvalid, err}
	}
	if o.Batch == nil {
		if err := r.prepare(ctx, a); err != nil {
			return err
		}
	}
	applied, hash, err := form(job)
	if err != nil {
		return err
	}
	if o.Batch != nil && o.Batch.Annotations[annotationApplied] == hash {
		return nil
	}
	if o.Batch == nil {
		old := new(batchv1.Job)
		switch err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), old); {
		case err == nil && !owned(old, a.Job):
			return conflict(job)
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
	}
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(fieldOwner), client.ForceOwnership)
	if err == nil && o.Batch == nil {
		r.Events.Eventf(a.Job, nil, corev1.EventTypeNormal, "JobCreated", "CreateJob", "created Job %s: %d pods for %d ranks", job.Name, a.Pods(), a.Job.Spec.Ranks)
	}
	return refused(err)
}

// prepare makes what the pods need to start.
func (r *Reconciler) prepare(ctx context.Context, a *desired.Attempt) error {
	if err := r.create(ctx, a.Service(), a.Job); err != nil {
		return err
	}
	id, err := r.identity(ctx, a)
	if err != nil {
		return err
	}
	document, err := a.ConfigMap(id)
	if err != nil {
		return &permanent{v1alpha1.ReasonInvalid, err}
	}
	if err := r.create(ctx, document, a.Job); err != nil {
		return err
	}
	if budget := a.DisruptionBudget(); budget != nil {
		return r.create(ctx, budget, a.Job)
	}
	return nil
}

// create makes an object that never changes. One of this job that is there
// already is as good.
func (r *Reconciler) create(ctx context.Context, object client.Object, job *v1alpha1.MPIJob) error {
	err := r.Client.Create(ctx, object, client.FieldOwner(fieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return refused(err)
	}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	if !owned(object, job) {
		return conflict(object)
	}
	return nil
}

// identity makes the attempt's certificates, or finds those that it has.
func (r *Reconciler) identity(ctx context.Context, a *desired.Attempt) (string, error) {
	fresh, err := newIdentity(int(a.Pods()))
	if err != nil {
		return "", err
	}
	secret := a.Secret(fresh)
	if err := r.create(ctx, secret, a.Job); err != nil {
		return "", err
	}
	return desired.IDOf(secret), nil
}

// refused tells errors that only a person can mend from those that pass.
func refused(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return &permanent{v1alpha1.ReasonInvalid, err}
	}
	return err
}

// form is an object as it is applied: without what the server owns, and with
// its hash.
func form(job *batchv1.Job) (*unstructured.Unstructured, string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return nil, "", err
	}
	delete(content, "status")
	text, err := json.Marshal(content)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:8])
	u := &unstructured.Unstructured{Object: content}
	u.SetAnnotations(map[string]string{annotationApplied: hash})
	return u, hash, nil
}

// remove takes an attempt's Job, its pods and its secrets away.
func (r *Reconciler) remove(ctx context.Context, o *verdict.Observation, a *desired.Attempt) error {
	if o.Batch != nil && o.Batch.DeletionTimestamp == nil {
		if err := r.Client.Delete(ctx, o.Batch, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return err
		}
		return r.forget(ctx, a)
	}
	return nil
}

// stop ends what still runs of a job that is over; what has ended stays, to be
// read. Certificates and the budget are of no use any more.
func (r *Reconciler) stop(ctx context.Context, o *verdict.Observation, a *desired.Attempt) error {
	if verdict.Finished(&o.Job.Status) {
		return nil // it was done before the status said so
	}
	if o.Batch != nil && !verdict.Over(o.Batch) {
		// A Job past its deadline ends its pods and keeps those that have ended.
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"activeDeadlineSeconds":1}}`))
		if err := r.Client.Patch(ctx, o.Batch.DeepCopy(), patch, client.FieldOwner(fieldOwner)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ending Job %s: %w", o.Batch.Name, err)
		}
	}
	if b := a.DisruptionBudget(); b != nil {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: b.ObjectMeta})); err != nil {
			return err
		}
	}
	return r.forget(ctx, a)
}

// forget deletes an attempt's certificates: nobody can join it any more.
func (r *Reconciler) forget(ctx context.Context, a *desired.Attempt) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Job.Namespace, Name: a.Name()}}
	return client.IgnoreNotFound(r.Client.Delete(ctx, secret))
}
