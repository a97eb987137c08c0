package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// lean removes the parts of an object that the operator does not use before the object
// is cached: the cache grows with the number of pods in the cluster.
func lean(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.Annotations, o.Labels, o.Finalizers = nil, annotationsRead(o.Annotations), ours(o.Labels), nil
		// Parts of the containers that are kept: whether there is a sidecar (used by
		// the issuer); which running init containers have to end before the others
		// start; the CPU requests (a job whose application requests no CPU gets a
		// warning); and the memory limits.
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

// leanTemplate keeps the parts of a template that decisions need: the name of the
// application's container, the priority of a gang, the termination grace period for
// which a verdict waits, and the node name. A template may be 1.5 MB. The whole
// template is read when a Job is made from it (Reconciler.whole).
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

// labelsRead are the labels of pods and Jobs that the operator reads. Tenants choose
// the other labels, which may take a megabyte.
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

// nodeNameMax bounds the name of a node that is kept, in bytes. No node has a longer
// name.
const nodeNameMax = validation.DNS1123SubdomainMaxLength

// schedulerMax bounds the name of a scheduler that is kept, in bytes. Kubernetes has no
// bound.
const schedulerMax = 253

// scheduler returns the name of a pod's scheduler, or "" if the pod has a node.
func scheduler(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || len(p.Spec.SchedulerName) > schedulerMax {
		return ""
	}
	return p.Spec.SchedulerName
}

// annotationsRead keeps the only annotation of pods that the operator reads: the name
// of the application's container, which is at most as long as a DNS label.
func annotationsRead(all map[string]string) map[string]string {
	if name := all[names.AnnotationContainer]; name != "" && len(name) <= validation.DNS1123LabelMaxLength {
		return map[string]string{names.AnnotationContainer: name}
	}
	return nil
}

// requesting returns the containers with only their names, CPU requests and memory
// limits.
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

// initial returns at most two init containers: the sidecar, with its memory limit, and
// the running one that has to end before the kubelet starts the next one.
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

// initKept bounds the init containers that are kept in addition to the sidecar. A
// container takes 400 bytes in the cache, and a pod may have thousands of them.
const initKept = 1

// claims returns the resource claims of a pod that has no node yet. They are not used
// later.
func claims(p *corev1.Pod) []corev1.PodResourceClaim {
	if p.Spec.NodeName != "" {
		return nil
	}
	return p.Spec.ResourceClaims
}

// limitsOfMemory returns a container's memory limit, which the message of an
// out-of-memory failure names.
func limitsOfMemory(c *corev1.Container) corev1.ResourceList {
	limit, ok := c.Resources.Limits[corev1.ResourceMemory]
	if !ok {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceMemory: limit}
}
