// Package webhook gives pods of other controllers their sidecar, when they are
// created: those with the label outrigger.dev/inject that name an MPIJob whose
// pods are External. Pods of MPIJobs that the operator makes itself do not need
// it.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Path is where the API server asks.
const Path = "/mutate--v1-pod"

// Pods answers for pods that are being created.
type Pods struct {
	Client  client.Reader
	Decoder admission.Decoder
	Options desired.Options
}

// Handle gives the pod its sidecar, or says why it cannot have one.
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
	switch err := h.join(ctx, req.Namespace, p); {
	case errors.As(err, new(apierrors.APIStatus)):
		return admission.Errored(http.StatusInternalServerError, err)
	case err != nil:
		return admission.Denied(err.Error())
	}
	patched, err := json.Marshal(p)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, patched)
}

// join makes p a pod of the job that it names.
func (h *Pods) join(ctx context.Context, namespace string, p *corev1.Pod) error {
	name := p.Labels[names.LabelJob]
	if name == "" {
		return fmt.Errorf("label %s asks for a sidecar, but %s does not name an MPIJob", names.LabelInject, names.LabelJob)
	}
	job := new(v1alpha1.MPIJob)
	switch err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("MPIJob %s, which label %s names, does not exist in namespace %s: create it first, with podManagement: External", name, names.LabelJob, namespace)
	case err != nil:
		return err
	case job.Spec.PodManagement != v1alpha1.PodsExternal:
		return fmt.Errorf("the pods of MPIJob %s are made by the operator: with podManagement: External others may make them", name)
	case verdict.Finished(&job.Status):
		return fmt.Errorf("MPIJob %s is over", name)
	}
	number, err := numberOf(p)
	if err != nil {
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
	return a.Join(p, number)
}

// numbers are where controllers tell each pod its number.
var numbers = []string{names.LabelPodNumber, batchv1.JobCompletionIndexAnnotation, "apps.kubernetes.io/pod-index"}

// numberOf is a pod's number in its job.
func numberOf(p *corev1.Pod) (int32, error) {
	for _, label := range numbers {
		text, ok := p.Labels[label]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("label %s is %q: want the pod's number", label, text)
		}
		return int32(n), nil
	}
	return 0, fmt.Errorf("the pod has no number: pods of Indexed Jobs and StatefulSets have one; give others the label %s", names.LabelPodNumber)
}
