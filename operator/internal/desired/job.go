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

// LabelQueue is how Kueue knows the Jobs that it admits.
const LabelQueue = "kueue.x-k8s.io/queue-name"

// labelsQueued are what else Kueue reads off a Job: the priority of its admission,
// and how long it may run once it is admitted.
var labelsQueued = []string{"kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/max-exec-time-seconds"}

// failureLimit is how many pods may fail before the Job gives up by itself,
// deletes the others and takes their logs along. It never shall: what a failure
// is, and how often a pod may be turned away by nodes, verdict says.
const failureLimit = math.MaxInt32

// BatchJob is the attempt's Indexed Job. It has no policy for pods that fail:
// one that went by exit codes would fail a Job that is being suspended, whose
// ranks end each other. What a failure is, verdict says.
func (a *Attempt) BatchJob() (*batchv1.Job, error) {
	s := &a.Job.Spec
	template := *s.Template.DeepCopy()
	if err := inject.Pod(&template.Spec, a.settings()); err != nil {
		return nil, err
	}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if template.Spec.EnableServiceLinks == nil {
		// Kubernetes' default gives each container seven variables for every Service of
		// the namespace: 3,000 Services make 0.9 MB, and exec fails over its limit.
		template.Spec.EnableServiceLinks = new(false)
	}
	template.Spec.Subdomain = a.peers()
	m := a.attemptMeta()
	template.Labels = merged(m.Labels, template.Labels, a.selected())
	delete(template.Labels, names.LabelInject) // they have theirs: the webhook would refuse them
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

// prefixQueued begins the annotations that Kueue reads off a Job, for the request by which
// it has nodes provisioned.
const prefixQueued = "provreq.kueue.x-k8s.io/"

// queued are the annotations of an MPIJob that are for its queue.
func (a *Attempt) queued() map[string]string {
	kept := map[string]string{}
	for name, value := range a.Job.Annotations {
		if strings.HasPrefix(name, prefixQueued) {
			kept[name] = value
		}
	}
	return kept
}

// suspend is what this operator wants of the Job's field of that name. A queue
// controller owns it otherwise: then it is nil, and left as it is.
func (a *Attempt) suspend() *bool {
	want := a.Job.Spec.RunPolicy.Suspend != nil && *a.Job.Spec.RunPolicy.Suspend
	if !want && a.Job.Labels[LabelQueue] != "" {
		return nil
	}
	return &want
}

// annotationSteered keeps what was last asked of a Job that may change, so that
// it is asked once, and whoever else steers the Job is not fought.
const annotationSteered = names.Group + "/steered"

// steeredMax bounds it, in bytes: a label's value is the longest part.
const steeredMax = 256

// wishes is what is asked of the Job that may change, as one word.
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

// LabelsRead are those of an MPIJob's labels that are read again.
func LabelsRead(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, l := range append([]string{LabelQueue}, labelsQueued...) {
		if v, ok := all[l]; ok {
			kept[l] = v
		}
	}
	return kept
}

// AnnotationsRead are those of a Job's annotations that are read again: others are for
// whoever set them, and as long as they like.
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

// Steered reports whether what is asked of a Job has been asked already.
func (a *Attempt) Steered(batch *batchv1.Job) bool {
	return batch.Annotations[annotationSteered] == a.wishes()
}

// Patch is a merge patch of a Job, by its metadata and its spec.
type Patch struct {
	meta, spec map[string]any
}

// Of is the patch as JSON, for this Job and no later one of its name.
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

// Steering brings a Job to what is asked of it now; done: nothing else is left to do
// for that.
func (a *Attempt) Steering(done bool) Patch {
	var queue *string // null: without
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

// NumberOf reads the attempt's number from an object's labels; -1 if it has none.
func NumberOf(labels map[string]string) int32 { return Numeral(labels[names.LabelAttempt]) }

// Numeral reads a number that a label has, as Kubernetes and we write it; -1 if it is none.
// What has more than one way to be written is none: caches are asked by the text, and a
// pod could have another one's number and not be found by it.
func Numeral(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return -1
	}
	return int32(n)
}
