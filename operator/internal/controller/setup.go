package controller

import (
	"context"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Indexes of the caches.
const (
	indexJob     = "outrigger.job"     // of a pod: its MPIJob's name
	indexPlace   = "outrigger.place"   // of a pod: its MPIJob's name, the attempt and the pod's number
	indexProfile = "outrigger.profile" // of an MPIJob: its profile's name
)

// OfJob selects a job's pods in the cache of a manager with this controller.
func OfJob(name string) client.ListOption { return client.MatchingFields{indexJob: name} }

// OfPlace selects the pods with one number in one attempt of a job in that cache.
func OfPlace(job string, attempt, number int32) client.ListOption {
	return client.MatchingFields{indexPlace: placeOf(job, strconv.Itoa(int(attempt)), strconv.Itoa(int(number)))}
}

func placeOf(job, attempt, number string) string { return job + "/" + attempt + "/" + number }

// Setup adds the controller to a manager. workers is the number of jobs that are
// reconciled at once, in addition to those with slow calls.
func (r *Reconciler) Setup(ctx context.Context, m ctrl.Manager, workers int) error {
	r.slow.limiter.most = slowSlots(workers)
	fields := m.GetFieldIndexer()
	if err := fields.IndexField(ctx, &corev1.Pod{}, indexJob, labelIndex); err != nil {
		return err
	}
	if err := fields.IndexField(ctx, &corev1.Pod{}, indexPlace, placeIndex); err != nil {
		return err
	}
	err := fields.IndexField(ctx, &v1alpha1.MPIJob{}, indexProfile, func(o client.Object) []string {
		if j, ok := o.(*v1alpha1.MPIJob); ok && j.Spec.ProfileName != "" {
			return []string{j.Spec.ProfileName}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).
		For(&v1alpha1.MPIJob{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, gathered(r.recent.rememberPod)).
		Watches(&v1alpha1.FabricProfile{}, handler.EnqueueRequestsFromMapFunc(r.usersOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers + r.slow.limiter.most}).
		Complete(r)
}

func labelIndex(o client.Object) []string {
	if name := o.GetLabels()[names.LabelJob]; name != "" {
		return []string{name}
	}
	return nil
}

func placeIndex(o client.Object) []string {
	l := o.GetLabels()
	return []string{placeOf(l[names.LabelJob], l[names.LabelAttempt], l[batchv1.JobCompletionIndexAnnotation])}
}

// newsOfPods is how long a change of a pod waits for changes of other pods of its job.
// A reconciliation reads all pods of a job, so one reconciliation per change would grow
// with the square of the number of pods.
const newsOfPods = 50 * time.Millisecond

// gathered enqueues a job newsOfPods after its pods have changed. It calls gone for
// each deleted pod.
func gathered(gone func(*corev1.Pod)) handler.EventHandler {
	add := func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], pods ...client.Object) {
		for _, p := range pods {
			for _, job := range ofLabel(ctx, p) {
				q.AddAfter(job, newsOfPods)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if p, ok := e.Object.(*corev1.Pod); ok {
				gone(p)
			}
			add(ctx, q, e.Object)
		},
	}
}

// ofLabel returns a request for the job that a pod's label names.
func ofLabel(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[names.LabelJob]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// usersOf returns requests for the jobs that name a profile.
func (r *Reconciler) usersOf(ctx context.Context, o client.Object) []reconcile.Request {
	jobs := new(v1alpha1.MPIJobList)
	if err := r.Client.List(ctx, jobs, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexProfile: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is not filled yet; each job is enqueued when it is read
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return requests
}
