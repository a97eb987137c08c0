package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// refusal is the reason why a request is refused, with its HTTP status.
type refusal struct {
	status int
	cause  string
	start  bool // it happens at every start of a pod, and is not a fault
	after  int  // seconds until the caller may ask again; 0: at any time
}

func (r *refusal) Error() string { return r.cause }

func refuse(status int, format string, a ...any) error {
	return &refusal{status: status, cause: fmt.Sprintf(format, a...)}
}

// Extra fields of a TokenReview of a token that is bound to a pod.
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
)

// accountPrefix is the prefix of a service account's user name. The namespace follows.
const accountPrefix = "system:serviceaccount:"

// caller is the pod that a token was issued to.
type caller struct{ namespace, name, uid string }

// whose returns the pod of a token: by the token's signature, or, if the published keys
// do not decide, by a review. Reviews of such tokens are rate-limited, so that forged
// tokens do not delay callers with a known key.
func (s *Server) whose(ctx context.Context, token, address string) (*caller, error) {
	if s.Signatures == nil {
		return s.review(ctx, token)
	}
	c, err := s.Signatures.caller(ctx, token)
	switch {
	case errors.Is(err, errStrange) && s.CheckAddress && s.strangers.spend(address) > 0, errors.Is(err, errStrange) && !s.strange.Allow():
		return nil, refuse(http.StatusServiceUnavailable, "%v: come again", err)
	case errors.Is(err, errStrange), errors.Is(err, errUnjudged):
		s.Log.Debug("a token is reviewed by the API server", "cause", err)
		return s.review(ctx, token)
	}
	return c, err
}

// review has the API server review a token. A token for another audience, an expired
// one and one whose pod is gone are refused.
func (s *Server) review(ctx context.Context, token string) (*caller, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "too many tokens to review at once")
	}
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{names.TokenAudience}}}
	if err := s.Reviews.Create(ctx, r); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the token could not be reviewed: %v", err)
	}
	if !r.Status.Authenticated || !slices.Contains(r.Status.Audiences, names.TokenAudience) {
		return nil, foreign(errors.New(r.Status.Error))
	}
	namespace, _, ok := strings.Cut(strings.TrimPrefix(r.Status.User.Username, accountPrefix), ":")
	name, uid := r.Status.User.Extra[extraPodName], r.Status.User.Extra[extraPodUID]
	if !ok || !strings.HasPrefix(r.Status.User.Username, accountPrefix) || len(name) != 1 || len(uid) != 1 {
		return nil, unbound(r.Status.User.Username)
	}
	return &caller{namespace, name[0], uid[0]}, nil
}

// locate returns the position of the caller in its job. A refusal is final for a
// sidecar, and the caches of a replica may be behind, so a refusal by the caches is
// confirmed at the API server. These reads are rate-limited in total, by namespace and
// by pod.
func (s *Server) locate(ctx context.Context, c *caller, address string) (*callerPod, error) {
	at, err := (&search{s, s.Cache, s.OfPlace}).locate(ctx, c, address)
	if f := new(refusal); !errors.As(err, &f) || f.status != http.StatusForbidden {
		return at, err
	}
	if s.searchPods.spend(c.uid) > 0 || s.searchNamespaces.spend(c.namespace) > 0 || !s.search.Allow() {
		return nil, refuse(http.StatusServiceUnavailable, "%v, as far as is known here: come again", err)
	}
	return (&search{s, s.Live, ofLabels}).locate(ctx, c, address)
}

// callerPod is the position of a caller: its job, the attempt and the number of its pod.
type callerPod struct {
	job             *v1alpha1.MPIJob
	attempt, number int32
}

// ofLabels selects the pods with one number in an attempt of a job at the API server.
func ofLabels(job string, attempt, number int32) client.ListOption {
	return client.MatchingLabels{
		names.LabelJob: job, names.LabelAttempt: strconv.Itoa(int(attempt)), batchv1.JobCompletionIndexAnnotation: strconv.Itoa(int(number)),
	}
}

// search looks up a caller, in the caches or at the API server.
type search struct {
	*Server
	in      client.Reader
	ofPlace func(job string, attempt, number int32) client.ListOption
}

func (s *search) locate(ctx context.Context, c *caller, address string) (*callerPod, error) {
	pod, err := s.pod(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.from(pod, address); err != nil {
		return nil, err
	}
	if !sidecared(pod) {
		return nil, refuse(http.StatusForbidden, "pod %s has no sidecar of Outrigger's", pod.Name)
	}
	job, err := s.job(ctx, pod)
	if err != nil {
		return nil, err
	}
	attempt := desired.NumberOf(pod.Labels)
	if attempt != verdict.AttemptOf(job) {
		return nil, refuse(http.StatusForbidden, "pod %s is of attempt %d of MPIJob %s, which is at attempt %d", pod.Name, attempt, job.Name, verdict.AttemptOf(job))
	}
	number := verdict.Number(pod, job)
	if number < 0 {
		return nil, refuse(http.StatusForbidden, "pod %s has no number in MPIJob %s", pod.Name, job.Name)
	}
	if err := s.first(ctx, pod, job, attempt, number); err != nil {
		return nil, err
	}
	return &callerPod{job, attempt, number}, nil
}

// pod returns the caller's pod. If the pod's address is not known yet, the caller has
// to ask again, which costs no call to the API server.
func (s *search) pod(ctx context.Context, c *caller) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	err := s.in.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != c.uid: // an earlier pod of the same name
		return nil, refuse(http.StatusForbidden, "there is no pod %s with the token's UID", c.name)
	case err != nil:
		return nil, refuse(http.StatusServiceUnavailable, "looking for pod %s: %v", c.name, err)
	case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return nil, refuse(http.StatusForbidden, "pod %s is over", c.name)
	case s.CheckAddress && len(pod.Status.PodIPs) == 0 && pod.Status.PodIP == "":
		return nil, &refusal{http.StatusServiceUnavailable, fmt.Sprintf("waiting for the address of pod %s, which its kubelet has not reported yet", c.name), true, 0}
	}
	return pod, nil
}

// from refuses a token that does not come from an address of its pod, such as a stolen
// one.
func (s *search) from(pod *corev1.Pod, address string) error {
	if !s.CheckAddress || same(pod.Status.PodIP, address) || slices.ContainsFunc(pod.Status.PodIPs, func(i corev1.PodIP) bool { return same(i.IP, address) }) {
		return nil
	}
	return refuse(http.StatusForbidden, "the token of pod %s came from %s, which is not its address %s: it was stolen, or the network translates addresses (see issuer.checkAddress of the chart)", pod.Name, address, pod.Status.PodIP)
}

// same compares two addresses, which may be written in different forms.
func same(a, b string) bool {
	x, err := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err == nil && err2 == nil && x.Unmap().WithZone("") == y.Unmap().WithZone("")
}

// sidecared reports whether a pod has Outrigger's sidecar, according to its spec.
func sidecared(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == names.ContainerSidecar })
}

// job returns the MPIJob of a pod. The pod must have been made by the attempt's Job,
// or, if podManagement is External, by any controller.
func (s *search) job(ctx context.Context, pod *corev1.Pod) (*v1alpha1.MPIJob, error) {
	name := pod.Labels[names.LabelJob]
	if name == "" {
		return nil, refuse(http.StatusForbidden, "pod %s is of no MPIJob", pod.Name)
	}
	job := new(v1alpha1.MPIJob)
	err := s.in.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse(http.StatusForbidden, "pod %s is of MPIJob %s, which does not exist", pod.Name, name)
	case err != nil:
		return nil, refuse(http.StatusServiceUnavailable, "looking for MPIJob %s: %v", name, err)
	case verdict.Finished(&job.Status):
		return nil, refuse(http.StatusForbidden, "MPIJob %s is over", name)
	case verdict.Earlier(pod, job):
		return nil, refuse(http.StatusForbidden, "pod %s is of an earlier MPIJob %s, which was deleted", pod.Name, name)
	case job.Spec.PodManagement == v1alpha1.PodsExternal:
		return job, nil
	}
	batch := new(batchv1.Job)
	of := desired.AttemptName(job.Name, desired.NumberOf(pod.Labels))
	err = s.in.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: of}, batch)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, refuse(http.StatusServiceUnavailable, "looking for Job %s: %v", of, err)
	}
	if err != nil || !metav1.IsControlledBy(batch, job) || !verdict.Made(pod, of, batch) {
		return nil, refuse(http.StatusForbidden, "pod %s was not made for MPIJob %s", pod.Name, name)
	}
	return job, nil
}

// first refuses a pod if an older pod, which has not failed and is not being deleted,
// has the same number. Every client with the right to create pods can give them any
// labels and owners, and if two pods are created at once, the webhook may see neither.
func (s *search) first(ctx context.Context, pod *corev1.Pod, job *v1alpha1.MPIJob, attempt, number int32) error {
	pods := new(corev1.PodList)
	if err := s.in.List(ctx, pods, client.InNamespace(pod.Namespace), s.ofPlace(job.Name, attempt, number), client.UnsafeDisableDeepCopy); err != nil {
		return refuse(http.StatusServiceUnavailable, "looking for pods of MPIJob %s: %v", job.Name, err)
	}
	for i := range pods.Items {
		o := &pods.Items[i]
		older := o.CreationTimestamp.Before(&pod.CreationTimestamp) || o.CreationTimestamp.Equal(&pod.CreationTimestamp) && o.Name < pod.Name
		if older && sidecared(o) && !verdict.Earlier(o, job) && o.DeletionTimestamp == nil && o.Status.Phase != corev1.PodFailed {
			return refuse(http.StatusForbidden, "pod %s has the number of pod %s in MPIJob %s", pod.Name, o.Name, job.Name)
		}
	}
	return nil
}
