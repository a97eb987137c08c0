// Package webhook adds sidecars to pods of other controllers when they are created: to
// pods with the label outrigger.dev/inject that name an MPIJob whose podManagement is
// External. Pods that the operator makes do not need it. The package owns the admission
// of these pods, the way in which a pod's number is determined, and the certificate of
// the webhook's server.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Path is the path of the API server's requests.
const Path = "/mutate--v1-pod"

// Pods handles the admission of pods.
type Pods struct {
	Client  client.Reader
	Live    client.Reader // reads from the API server, not from the caches
	Decoder admission.Decoder
	Options desired.Options
	Watched []string // namespaces whose MPIJobs this operator runs; nil: all
	// OfPlace selects the pods with one number in an attempt of a job in Client.
	OfPlace func(job string, attempt, number int32) client.ListOption
	// Events records refusals; nil: they are not recorded.
	Events events.EventRecorder
	// LimitsOf reads the LimitRanges of a namespace; nil: there are none.
	LimitsOf func(ctx context.Context, namespace string) []corev1.LimitRange
	// MinorOf reads the minor version of the cluster's Kubernetes, 1.MINOR; nil: not
	// known.
	MinorOf func(ctx context.Context) (int, error)
	// UsersOf reads the user ids that a namespace allows for its pods; nil: any.
	UsersOf func(ctx context.Context, namespace string) (inject.UIDs, error)
	Now     func() time.Time // nil: time.Now

	confirmed confirmed
	minor     minor
}

// Handle adds the sidecar to the pod, or returns why this is not possible.
func (h *Pods) Handle(ctx context.Context, req admission.Request) admission.Response {
	p := new(corev1.Pod)
	if err := h.Decoder.Decode(req, p); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	switch p.Labels[names.LabelInject] {
	case "true":
	case "false", "":
		return admission.Allowed("not asked for")
	default:
		return admission.Denied(fmt.Sprintf("label %s is %q: want true or false", names.LabelInject, p.Labels[names.LabelInject]))
	}
	was := p.DeepCopy()
	switch err := h.join(ctx, req.Namespace, p); {
	case errors.As(err, new(apierrors.APIStatus)):
		return admission.Errored(http.StatusInternalServerError, err)
	case err != nil:
		if req.DryRun == nil || !*req.DryRun {
			h.recordRefusal(ctx, client.ObjectKey{Namespace: req.Namespace, Name: p.Labels[names.LabelJob]}, p, err)
		}
		return admission.Denied(err.Error())
	}
	patched, err := changed(req.Object.Raw, was, p)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, patched)
}

// noteMax is the maximum length of the text of an Event, in bytes (events.k8s.io/v1).
const noteMax = 1024

// recordRefusal records in an Event of the MPIJob why a pod was refused: the owner of the job
// does not see the answer to the controller that makes the pods.
func (h *Pods) recordRefusal(ctx context.Context, key client.ObjectKey, p *corev1.Pod, cause error) {
	job := new(v1alpha1.MPIJob)
	if h.Events == nil || key.Name == "" || h.watches(key.Namespace) != nil || h.Client.Get(ctx, key, job) != nil {
		return
	}
	pod := cmp.Or(p.Name, p.GenerateName+"*")
	h.Events.Eventf(job, nil, corev1.EventTypeWarning, verdict.EventRefused, "InjectPod", "%s", podlife.Cut("pod "+pod+": "+cause.Error(), noteMax, podlife.TextCut))
}

// join makes p a pod of the job that it names.
func (h *Pods) join(ctx context.Context, namespace string, p *corev1.Pod) error {
	name := p.Labels[names.LabelJob]
	if name == "" {
		return fmt.Errorf("label %s asks for a sidecar, but %s does not name an MPIJob", names.LabelInject, names.LabelJob)
	}
	if err := h.watches(namespace); err != nil {
		return err
	}
	job, err := h.jobOf(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("MPIJob %s, which label %s names, does not exist in namespace %s: create it first, with podManagement: External", name, names.LabelJob, namespace)
	case err != nil:
		return err
	case job.Spec.PodManagement != v1alpha1.PodsExternal:
		return fmt.Errorf("the pods of MPIJob %s are made by the operator: with podManagement: External others may make them", name)
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("MPIJob %s is being deleted", name)
	case verdict.Finished(&job.Status):
		return fmt.Errorf("MPIJob %s is over", name)
	case meta.FindStatusCondition(job.Status.Conditions, v1alpha1.ConditionRunning) != nil:
		return fmt.Errorf("all ranks of MPIJob %s have been started: none of them can be started again", name)
	}
	number, err := numberOf(p, desired.Pods(&job.Spec))
	if err != nil {
		return err
	}
	if err := h.free(ctx, p, job, number); err != nil {
		return err
	}
	a := &desired.Attempt{Job: job, Number: verdict.AttemptOf(job), Options: h.Options}
	if job.Spec.ProfileName != "" {
		profile := new(v1alpha1.FabricProfile)
		if err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: job.Spec.ProfileName}, profile); err != nil {
			return err
		}
		a.Profile = profile.Spec
	}
	if a.Peers, err = h.peersOf(ctx, a); err != nil {
		return err
	}
	a.Bounds = h.boundsOf(ctx, job)
	if a.UIDs, err = h.usersOf(ctx, job); err != nil {
		return err
	}
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever { // otherwise the version does not matter
		a.Minor = h.minor.of(ctx, h.MinorOf, h.now())
	}
	return a.Join(p, number)
}

// watchedTold is how many of the watched namespaces an error names.
const watchedTold = 10

// watches returns an error if this operator does not run the MPIJobs of a namespace:
// its caches do not have them, and it may have no rights there.
func (h *Pods) watches(namespace string) error {
	if len(h.Watched) == 0 || slices.Contains(h.Watched, namespace) {
		return nil
	}
	told, more := h.Watched, ""
	if n := len(told) - watchedTold; n > 0 {
		told, more = told[:watchedTold], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("this operator does not watch namespace %s, and runs no MPIJob there: it watches %s%s (operator.watchNamespaces of the chart); take label %s off the pod, or have the namespace added", namespace, strings.Join(told, ", "), more, names.LabelInject)
}

// free checks that no other pod of the job has the number: two such pods would have one
// name, and each would take the position of the other. It reads only the pods with that
// number. Reading all pods of a job for each of them would take quadratic time.
func (h *Pods) free(ctx context.Context, p *corev1.Pod, job *v1alpha1.MPIJob, number int32) error {
	pods := new(corev1.PodList)
	attempt := verdict.AttemptOf(job)
	if err := h.Client.List(ctx, pods, client.InNamespace(job.Namespace), h.OfPlace(job.Name, attempt, number), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range pods.Items {
		o := &pods.Items[i]
		if o.Status.Phase == corev1.PodFailed && len(o.Status.ContainerStatuses) == 0 {
			continue // a node rejected it, and its controller makes another one
		}
		if verdict.Number(o, job) != number || desired.NumberOf(o.Labels) != attempt || o.Name == p.Name {
			continue
		}
		switch earlier := verdict.Earlier(o, job); {
		case !earlier:
			return fmt.Errorf("MPIJob %s has a pod of number %d already: %s", job.Name, number, o.Name)
		case !verdict.Terminal(o): // it still has the host name
			return fmt.Errorf("pod %s of an earlier MPIJob %s has the number %d until it has ended: delete it, or wait", o.Name, job.Name, number)
		}
	}
	return nil
}

// numbers are the labels with a pod's number: Outrigger's, that of Indexed Jobs and
// that of StatefulSets.
var numbers = []string{names.LabelPodNumber, batchv1.JobCompletionIndexAnnotation, appsv1.PodIndexLabel}

// Labels and annotation of LeaderWorkerSet: a pod's index in its group, the index of
// the group, and the size of each group. The leader is number 0. Its pods belong to
// StatefulSets, whose own index differs.
const (
	labelWorker     = "leaderworkerset.sigs.k8s.io/worker-index"
	labelGroup      = "leaderworkerset.sigs.k8s.io/group-index"
	labelLeaderSet  = "leaderworkerset.sigs.k8s.io/name"
	annotationGroup = "leaderworkerset.sigs.k8s.io/size"
)

// ofLeaderWorkerSet returns the number of a pod of a LeaderWorkerSet. Its groups are
// numbered consecutively.
func ofLeaderWorkerSet(p *corev1.Pod) (int32, error) {
	worker, err := strconv.ParseInt(p.Labels[labelWorker], 10, 16)
	group, err2 := strconv.ParseInt(p.Labels[labelGroup], 10, 16)
	size, err3 := strconv.ParseInt(p.Annotations[annotationGroup], 10, 16)
	if err != nil || err2 != nil || err3 != nil || group < 0 || worker < 0 || worker >= size {
		return 0, fmt.Errorf("the pod is of LeaderWorkerSet %s, whose labels %s and %s and annotation %s do not say which of its pods", p.Labels[labelLeaderSet], labelGroup, labelWorker, annotationGroup)
	}
	return int32(group*size + worker), nil
}

// Labels of JobSet: the index of a pod's Job, counted over all replicas, and the number
// of Jobs.
const (
	labelJobIndex = "jobset.sigs.k8s.io/job-global-index"
	labelJobs     = "jobset.sigs.k8s.io/global-replicas"
	labelJobSet   = "jobset.sigs.k8s.io/jobset-name"
)

// ofJobSet returns the number of the first pod of the JobSet's Job that a pod belongs
// to. The Jobs must have the same number of pods each: otherwise, no label determines a
// pod's number.
func ofJobSet(p *corev1.Pod, pods int32) (int32, error) {
	if p.Labels[labelJobSet] == "" || p.Labels[names.LabelPodNumber] != "" {
		return 0, nil
	}
	index, err := strconv.ParseInt(p.Labels[labelJobIndex], 10, 32)
	jobs, err2 := strconv.ParseInt(p.Labels[labelJobs], 10, 32)
	if err != nil || err2 != nil || jobs < 1 || index < 0 || index >= jobs {
		return 0, fmt.Errorf("the pod is of JobSet %s, whose labels %s and %s do not say of which of its Jobs", p.Labels[labelJobSet], labelJobIndex, labelJobs)
	}
	if int64(pods)%jobs != 0 {
		return 0, fmt.Errorf("JobSet %s has %d Jobs for a job of %d pods: each of them needs as many pods", p.Labels[labelJobSet], jobs, pods)
	}
	return int32(index * int64(pods) / jobs), nil
}

// eachJob returns the number of pods of each Job of a pod's JobSet, or the maximum if
// the pod's number is not counted within a Job of a JobSet.
func eachJob(p *corev1.Pod, pods int32) int32 {
	jobs, err := strconv.ParseInt(p.Labels[labelJobs], 10, 32)
	if p.Labels[labelJobSet] == "" || p.Labels[names.LabelPodNumber] != "" || err != nil || jobs < 1 {
		return math.MaxInt32
	}
	return int32(int64(pods) / jobs)
}

// numberOf returns the number of a pod in its job of pods pods.
func numberOf(p *corev1.Pod, pods int32) (int32, error) {
	if p.Labels[labelLeaderSet] != "" && p.Labels[names.LabelPodNumber] == "" {
		return ofLeaderWorkerSet(p)
	}
	first, err := ofJobSet(p, pods)
	if err != nil {
		return 0, err
	}
	for _, label := range numbers {
		text, ok := p.Labels[label]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("label %s is %q: want the pod's number", label, text)
		}
		if each := eachJob(p, pods); n >= int64(each) {
			return 0, fmt.Errorf("the pod is number %d of its Job in JobSet %s, whose Jobs have %d pods each if they have as many pods each, as they need here: the job has %d pods; make the Jobs equal, or give the pods the label %s", n, p.Labels[labelJobSet], each, pods, names.LabelPodNumber)
		}
		return first + int32(n), nil
	}
	return 0, fmt.Errorf("the pod has no number: pods of Indexed Jobs, JobSets, StatefulSets and LeaderWorkerSets have one; give others the label %s", names.LabelPodNumber)
}
