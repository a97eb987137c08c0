package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// TestLabelsAreNotKept: tenants choose labels, whose only total bound is that of the
// object. The caches keep the labels that the operator reads.
func TestLabelsAreNotKept(t *testing.T) {
	labels := func() map[string]string {
		return map[string]string{
			names.LabelJob: "cg", names.LabelAttempt: "0", names.LabelInject: "true", batchv1.JobCompletionIndexAnnotation: "3", "example.com/fat": strings.Repeat("v", 63),
		}
	}
	for _, o := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels()}}, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: labels(), Annotations: labels()}},
	} {
		if _, err := lean(o); err != nil {
			t.Fatal(err)
		}
		if got := o.GetLabels(); len(got) != 4 || got["example.com/fat"] != "" || got[names.LabelJob] != "cg" || got[batchv1.JobCompletionIndexAnnotation] != "3" {
			t.Errorf("%T keeps %v", o, got)
		}
		if got := o.GetAnnotations(); len(got) != 0 {
			t.Errorf("%T keeps the annotations %v", o, got)
		}
	}
}

// TestTheApplicationIsKept: of a pod's annotations, the cache keeps the name of the
// application's container, and the record of an ended pod has it too, with the end of
// that container.
func TestTheApplicationIsKept(t *testing.T) {
	for name, want := range map[string]string{"main": "main", strings.Repeat("x", 64): ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationContainer: name, "fat": "x"}}}
		for i := range 20 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("mesh", i)})
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "main"})
		cached, remembered := p.DeepCopy(), p.DeepCopy()
		if _, err := lean(cached); err != nil {
			t.Fatal(err)
		}
		essence(remembered, wordsMax)
		for _, p := range []*corev1.Pod{cached, remembered} {
			if len(p.Annotations) > 1 || p.Annotations[names.AnnotationContainer] != want {
				t.Errorf("%s: annotations %v are kept", name, p.Annotations)
			}
		}
		if c := remembered.Status.ContainerStatuses; want != "" && (len(c) != remainsKept+1 || c[remainsKept].Name != "main") {
			t.Errorf("containers that are remembered: %v", c)
		}
	}
}

// TestLimitsOfMemoryAreKept: the cache keeps the memory limits of a pod's containers.
func TestLimitsOfMemoryAreKept(t *testing.T) {
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("1")}
	p := new(corev1.Pod)
	p.Spec.Containers = []corev1.Container{{Name: "solver", Resources: corev1.ResourceRequirements{Limits: limits}}}
	p.Spec.InitContainers = []corev1.Container{{Name: names.ContainerSidecar, Resources: corev1.ResourceRequirements{Limits: limits}}}
	if _, err := lean(p); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(p.Spec.Containers, p.Spec.InitContainers...) {
		if len(c.Resources.Limits) != 1 || c.Resources.Limits.Memory().String() != "1Gi" {
			t.Errorf("%s keeps the limits %v", c.Name, c.Resources.Limits)
		}
	}
}

// TestInitContainersAreFew: of thousands of init containers of a pod, the cache keeps
// the sidecar and the running one that has to end.
func TestInitContainersAreFew(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for _, runs := range []string{"", "fetch-7", "mesh-3", "last"} {
		p := new(corev1.Pod)
		add := func(name string, policy *corev1.ContainerRestartPolicy) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: policy, Command: []string{"x"}})
			s := corev1.ContainerStatus{Name: name}
			if name == runs || policy != nil {
				s.State.Running = &corev1.ContainerStateRunning{}
			}
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		}
		for i := range 3000 {
			add(fmt.Sprint("fetch-", i), nil)
			add(fmt.Sprint("mesh-", i), &always)
		}
		add(names.ContainerSidecar, &always)
		add("last", nil)
		if _, err := lean(p); err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, c := range p.Spec.InitContainers {
			kept = append(kept, c.Name)
		}
		want := []string{names.ContainerSidecar}
		if runs == "fetch-7" {
			want = []string{runs, names.ContainerSidecar}
		}
		if runs == "last" {
			want = []string{names.ContainerSidecar, runs}
		}
		if !slices.Equal(kept, want) {
			t.Errorf("%q runs: %q are kept, want %q", runs, kept, want)
		}
	}
}

// TestMPIJobsAreLean: of an MPIJob with a megabyte of labels and annotations, the cache
// keeps the labels for its queue.
func TestMPIJobsAreLean(t *testing.T) {
	fat := map[string]string{desired.LabelQueue: "hpc", "kueue.x-k8s.io/priority-class": "high"}
	for i := range 1 << 20 / 80 {
		fat[fmt.Sprintf("example.com/fat-%d", i)] = strings.Repeat("v", 63)
	}
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Labels: fat, Annotations: fat, Finalizers: []string{"example.com/stay"}}}
	j.Spec.Ranks = 4
	profile := &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Name: "cg", Labels: fat, Annotations: fat}}
	for _, o := range []client.Object{j, profile} {
		if _, err := lean(o); err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(o); err != nil || len(text) > 2000 {
			t.Errorf("%T has %d bytes in the cache, %v", o, len(text), err)
		}
	}
	if j.Name != "cg" || j.Spec.Ranks != 4 || len(j.Labels) != 2 || j.Labels[desired.LabelQueue] != "hpc" {
		t.Errorf("kept is %+v", j)
	}
}

// TestRememberedPodsAreBounded: the record of ended pods is bounded, whatever their
// statuses contain; the end of each pod is kept.
func TestRememberedPodsAreBounded(t *testing.T) {
	var r recent
	job := new(v1alpha1.MPIJob)
	job.Namespace, job.Name, job.Spec.PodManagement = "hpc", "cg", v1alpha1.PodsExternal
	long := strings.Repeat("x", 1<<16)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: long, Reason: long, ContainerID: long}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "hpc", Labels: map[string]string{names.LabelJob: "cg", names.LabelInject: "true", batchv1.JobCompletionIndexAnnotation: "3"},
		Annotations: map[string]string{"fat": long}, Finalizers: []string{long},
	}}
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Message: long, NominatedNodeName: long}
	for range 100 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Message: long})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "solver", State: ended, ImageID: long})
	}
	const pods = 1000
	for i := range pods {
		p.UID = types.UID(fmt.Sprint(i))
		r.rememberPod(p)
	}
	kept := r.remembered(job, nil)
	if len(kept) != pods {
		t.Fatalf("of %d pods %d are remembered", pods, len(kept))
	}
	text := 0
	for i, p := range kept {
		for t := range textsOf(&p.Status) {
			text += len(*t)
		}
		c := p.Status.ContainerStatuses
		if len(c) == 0 || c[0].State.Terminated.ExitCode != 3 || p.Labels[batchv1.JobCompletionIndexAnnotation] != "3" || p.Annotations != nil || c[0].ImageID != "" || p.Status.NominatedNodeName != "" {
			t.Fatalf("pod %d is remembered as %+v", i, p)
		}
	}
	if text > wordsMax || len(kept[0].Status.ContainerStatuses[0].State.Terminated.Message) != wordMax {
		t.Errorf("%d bytes of text are kept, at most %d may be; the first message has %d", text, wordsMax, len(kept[0].Status.ContainerStatuses[0].State.Terminated.Message))
	}
	if len(p.Status.Conditions) != 100 || p.Annotations == nil {
		t.Error("the cache's own pod was changed")
	}
}
