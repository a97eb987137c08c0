package desired

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// LabelQueue is the label by which Kueue finds the Jobs that it manages.
const LabelQueue = "kueue.x-k8s.io/queue-name"

// labelsQueued are the other labels that Kueue reads: the priority of the admission,
// and the maximum run time after it.
var labelsQueued = []string{"kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/max-exec-time-seconds"}

// failureLimit is the number of failed pods at which the Job gives up by itself and
// deletes the others with their logs. It is so large that the Job never does: package
// verdict decides what a failure is, and how often nodes may reject a pod.
const failureLimit = math.MaxInt32

// BatchJob returns the attempt's Indexed Job. It has no pod failure policy: a policy by
// exit codes would fail a Job during its suspension, because ranks end each other.
// Package verdict decides what a failure is.
func (a *Attempt) BatchJob() (*batchv1.Job, error) {
	s := &a.Job.Spec
	template := *s.Template.DeepCopy()
	if err := inject.Pod(&template.Spec, a.settings()); err != nil {
		return nil, err
	}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if template.Spec.EnableServiceLinks == nil {
		// By default, Kubernetes gives each container seven variables for every Service
		// of the namespace. 3,000 Services make 0.9 MB, and exec fails above its limit.
		template.Spec.EnableServiceLinks = new(false)
	}
	template.Spec.Subdomain = a.peers()
	m := a.attemptMeta()
	template.Labels = merged(m.Labels, template.Labels, a.selected())
	delete(template.Labels, names.LabelInject) // they have a sidecar, and the webhook would refuse them
	a.group(&template)
	m.Annotations = merged(a.queued(), map[string]string{annotationSteered: a.wishes()})
	if q := a.Job.Labels[LabelQueue]; q != "" {
		m.Labels[LabelQueue] = q
		for _, l := range labelsQueued {
			if v, ok := a.Job.Labels[l]; ok {
				m.Labels[l] = v
			}
		}
	}
	pods, limit, indexed, replace := a.Pods(), int32(failureLimit), batchv1.IndexedCompletion, batchv1.Failed
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: m,
		Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, CompletionMode: &indexed, BackoffLimit: &limit,
			PodReplacementPolicy: &replace, Suspend: a.suspend(), Template: template,
		},
	}, nil
}

// prefixQueued is the prefix of the annotations that Kueue copies from a Job to its
// request for the provisioning of nodes.
const prefixQueued = "provreq.kueue.x-k8s.io/"

// queued returns the annotations of an MPIJob that are for its queue.
func (a *Attempt) queued() map[string]string {
	kept := map[string]string{}
	for name, value := range a.Job.Annotations {
		if strings.HasPrefix(name, prefixQueued) {
			kept[name] = value
		}
	}
	return kept
}

// suspend returns the value that the operator wants in the Job's field suspend. It is
// nil if a queue controller owns the field, which is then left unchanged.
func (a *Attempt) suspend() *bool {
	want := a.Job.Spec.RunPolicy.Suspend != nil && *a.Job.Spec.RunPolicy.Suspend
	if !want && a.Job.Labels[LabelQueue] != "" {
		return nil
	}
	return &want
}

// annotationSteered records the last requested values of the Job's fields that may
// change. Each request is made once, so that the operator does not fight other
// controllers that change the same fields.
const annotationSteered = names.Group + "/steered"

// steeredMax bounds the annotation, in bytes. The longest part is the value of a label.
const steeredMax = 256

// wishes returns the requested values of the Job's fields that may change, as one word.
func (a *Attempt) wishes() string {
	suspend := "-"
	if s := a.suspend(); s != nil {
		suspend = strconv.FormatBool(*s)
	}
	wishes := "suspend=" + suspend + ",queue=" + a.Job.Labels[LabelQueue]
	if a.Job.Spec.RunPolicy.Disruption == v1alpha1.DisruptionPrevented {
		wishes += ",disruption=Prevented"
	}
	return wishes
}

// LabelsRead returns the labels of an MPIJob that the operator reads.
func LabelsRead(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, l := range append([]string{LabelQueue}, labelsQueued...) {
		if v, ok := all[l]; ok {
			kept[l] = v
		}
	}
	return kept
}

// AnnotationsRead returns the annotations of a Job that the operator reads. Other
// annotations belong to other clients, and may have any length.
func AnnotationsRead(batch *batchv1.Job) map[string]string {
	kept := map[string]string{}
	if v, ok := batch.Annotations[annotationSteered]; ok && len(v) <= steeredMax {
		kept[annotationSteered] = v
	}
	if v, ok := batch.Annotations[annotationCause]; ok && len(v) <= causeMax && ended(batch) {
		kept[annotationCause] = v
	}
	return kept
}

// Steered reports whether the present values have been requested of a Job.
func (a *Attempt) Steered(batch *batchv1.Job) bool {
	return batch.Annotations[annotationSteered] == a.wishes()
}

// Patch is a merge patch of a Job's metadata and spec.
type Patch struct {
	meta, spec map[string]any
}

// Of returns the patch as JSON, for this Job and no later one of the same name.
func (p Patch) Of(batch *batchv1.Job) ([]byte, error) {
	meta := maps.Clone(p.meta)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"] = batch.UID
	patch := map[string]any{"metadata": meta}
	if p.spec != nil {
		patch["spec"] = p.spec
	}
	return json.Marshal(patch)
}

// Steering returns the patch that sets the requested values of a Job. done records them
// as requested, and must be false while a part of the change remains.
func (a *Attempt) Steering(done bool) Patch {
	var queue *string // null removes the label
	if q, ok := a.Job.Labels[LabelQueue]; ok {
		queue = &q
	}
	meta := map[string]any{"labels": map[string]*string{LabelQueue: queue}}
	if done {
		meta["annotations"] = map[string]string{annotationSteered: a.wishes()}
	}
	p := Patch{meta: meta}
	if s := a.suspend(); s != nil {
		p.spec = map[string]any{"suspend": *s}
	}
	return p
}

func merged(ours ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range ours {
		maps.Copy(out, m)
	}
	return out
}

func pull(policy string) corev1.PullPolicy { return corev1.PullPolicy(policy) }

// NumberOf returns the attempt number in an object's labels; -1 if there is none.
func NumberOf(labels map[string]string) int32 { return Numeral(labels[names.LabelAttempt]) }

// Numeral parses the number in a label; -1 if it is not valid. Only the canonical form
// is valid: the caches are indexed by the text, so a pod with another form of a number
// would not be found by the number.
func Numeral(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return -1
	}
	return int32(n)
}
