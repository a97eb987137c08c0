package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// lean drops what nobody here asks for, which is most of an object, before it is
// cached: memory grows with the pods of the cluster.
func lean(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.Annotations, o.Labels, o.Finalizers = nil, annotationsRead(o.Annotations), ours(o.Labels), nil
		// Of the containers, whether there is a sidecar: the issuer asks; which of the init
		// containers end: the others start after them; what CPU they request: a job whose
		// application requests none is warned; and limits of memory.
		o.Spec = corev1.PodSpec{
			NodeName: o.Spec.NodeName, SchedulerName: scheduler(o), ResourceClaims: claims(o),
			InitContainers: initial(o), Containers: requesting(o.Spec.Containers), Resources: o.Spec.Resources,
		}
	case *v1alpha1.MPIJob:
		o.ManagedFields, o.Annotations, o.Labels, o.Finalizers = nil, nil, desired.LabelsRead(o.Labels), nil
		o.Spec.Template = leanTemplate(&o.Spec.Template)
	case *v1alpha1.FabricProfile:
		o.ManagedFields, o.Annotations, o.Labels, o.Finalizers = nil, nil, nil, nil
	case *batchv1.Job:
		o.ManagedFields, o.Labels, o.Annotations, o.Spec.Template = nil, ours(o.Labels), desired.AnnotationsRead(o), corev1.PodTemplateSpec{}
	}
	return object, nil
}

// leanTemplate keeps what decisions need of a template, which may be a megabyte and a
// half: the name of the application's container, the priority of a gang, the grace for which
// a verdict waits, and the node that it names. The whole one is read when a Job is made of it (Reconciler.whole).
func leanTemplate(t *corev1.PodTemplateSpec) (kept corev1.PodTemplateSpec) {
	kept.Spec.PriorityClassName, kept.Spec.TerminationGracePeriodSeconds = t.Spec.PriorityClassName, t.Spec.TerminationGracePeriodSeconds
	if len(t.Spec.NodeName) <= nodeNameMax {
		kept.Spec.NodeName = t.Spec.NodeName
	}
	for i := range t.Spec.Containers[:min(1, len(t.Spec.Containers))] {
		kept.Spec.Containers = []corev1.Container{{Name: t.Spec.Containers[i].Name}}
	}
	return kept
}

// labelsRead are the labels of pods and Jobs that somebody here reads. Others may be
// a megabyte, and are the tenants' to choose.
var labelsRead = []string{names.LabelJob, names.LabelAttempt, names.LabelInject, names.LabelJobUID, batchv1.JobCompletionIndexAnnotation}

func ours(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, l := range labelsRead {
		if v, ok := all[l]; ok {
			kept[l] = v
		}
	}
	return kept
}

// nodeNameMax bounds the name of a node that is kept, in bytes: none has a longer one.
const nodeNameMax = validation.DNS1123SubdomainMaxLength

// schedulerMax bounds the name of a scheduler that is kept, in bytes: Kubernetes does not.
const schedulerMax = 253

// scheduler is the name of a pod's scheduler as long as no other one has taken it.
func scheduler(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || len(p.Spec.SchedulerName) > schedulerMax {
		return ""
	}
	return p.Spec.SchedulerName
}

// annotationsRead are those of a pod's annotations that somebody here reads: the name of
// its application's container, which has no more bytes than a label of DNS.
func annotationsRead(all map[string]string) map[string]string {
	if name := all[names.AnnotationContainer]; name != "" && len(name) <= validation.DNS1123LabelMaxLength {
		return map[string]string{names.AnnotationContainer: name}
	}
	return nil
}

// requesting are containers of which the requests of CPU and the limits of memory are
// known, and no more.
func requesting(all []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i := range all {
		kept[i].Name = all[i].Name
		if cpu, ok := all[i].Resources.Requests[corev1.ResourceCPU]; ok {
			kept[i].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
		}
		kept[i].Resources.Limits = limitsOfMemory(&all[i])
	}
	return kept
}

// initial are two init containers at most, whatever a template has: the sidecar, with its limit
// of memory, and the one that runs and is to end, since the kubelet starts the next one after it.
func initial(p *corev1.Pod) []corev1.Container {
	var kept []corev1.Container
	left, runs := initKept, map[string]bool{}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.State.Running != nil {
			runs[s.Name] = true
		}
	}
	for i := range p.Spec.InitContainers {
		switch c := &p.Spec.InitContainers[i]; {
		case c.Name == names.ContainerSidecar:
			k := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
			k.Resources.Limits = limitsOfMemory(c)
			kept = append(kept, k)
		case left > 0 && runs[c.Name] && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways):
			left--
			kept = append(kept, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
		}
	}
	return kept
}

// initKept bounds the init containers that are kept in addition to the sidecar. A container in the
// cache has 400 bytes, and a pod may have thousands of them.
const initKept = 1

// claims are the resource claims of a pod that has no node, which needs them before.
func claims(p *corev1.Pod) []corev1.PodResourceClaim {
	if p.Spec.NodeName != "" {
		return nil
	}
	return p.Spec.ResourceClaims
}

// limitsOfMemory is a container's limit of memory: who has used more is told how much
// that was.
func limitsOfMemory(c *corev1.Container) corev1.ResourceList {
	limit, ok := c.Resources.Limits[corev1.ResourceMemory]
	if !ok {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: limit}
}
