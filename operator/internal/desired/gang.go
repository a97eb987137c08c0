package desired

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// The label and the annotation by which pods name their group.
const (
	labelPodGroup      = "scheduling.x-k8s.io/pod-group"
	annotationPodGroup = "scheduling.k8s.io/group-name" // Volcano's
)

var gangKinds = map[v1alpha1.Gang]schema.GroupVersionKind{
	v1alpha1.GangSchedulerPlugins: {Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"},
	v1alpha1.GangVolcano:          {Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"},
}

// PodGroup returns the group by which the attempt's pods are scheduled all or none; nil
// if the job asks for none. It is unstructured, so that the types of the schedulers are
// not needed for three fields.
func (a *Attempt) PodGroup() *unstructured.Unstructured {
	kind, ok := gangKinds[a.Job.Spec.RunPolicy.Gang]
	if !ok {
		return nil
	}
	m := a.attemptMeta()
	u := new(unstructured.Unstructured)
	u.SetGroupVersionKind(kind)
	u.SetNamespace(m.Namespace)
	u.SetName(m.Name)
	u.SetLabels(m.Labels)
	u.SetOwnerReferences(m.OwnerReferences)
	spec := map[string]any{"minMember": int64(a.Pods())}
	if priority := a.Job.Spec.Template.Spec.PriorityClassName; priority != "" && a.Job.Spec.RunPolicy.Gang == v1alpha1.GangVolcano {
		spec["priorityClassName"] = priority
	}
	u.Object["spec"] = spec
	return u
}

// group adds the name of their group to the pods of a template.
func (a *Attempt) group(template *corev1.PodTemplateSpec) {
	switch a.Job.Spec.RunPolicy.Gang {
	case v1alpha1.GangSchedulerPlugins:
		template.Labels = merged(template.Labels, map[string]string{labelPodGroup: a.Name()})
	case v1alpha1.GangVolcano:
		template.Annotations = merged(template.Annotations, map[string]string{annotationPodGroup: a.Name()})
	case v1alpha1.GangNone:
	}
}
