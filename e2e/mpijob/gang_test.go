//go:build cluster && controllers

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// gang returns a job of two pods in a PodGroup, with this much CPU for each pod.
func gang(ns, name, cpu, scheduler string, kind v1alpha1.Gang) *v1alpha1.MPIJob {
	j := idle(ns, name)
	j.Spec.RunPolicy.Gang = kind
	j.Spec.Template.Spec.SchedulerName = scheduler
	j.Spec.Template.Spec.TopologySpreadConstraints = nil
	ask := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	j.Spec.Template.Spec.Containers[0].Resources.Requests = ask
	return j
}

// The real scheduler of scheduler-plugins.
func TestCoscheduling(t *testing.T) {
	const scheduler = "scheduler-plugins-scheduler" // of its chart
	// Its chart's rights lack what Kubernetes' own scheduler asks for since 1.34.
	apply(t, "", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coscheduling-as-kube-scheduler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kube-scheduler"}
subjects:
- {kind: ServiceAccount, name: `+scheduler+`, namespace: coscheduling-system}
`)
	controllerOf(t, "coscheduling")
	allOrNone(t, scheduler, v1alpha1.GangSchedulerPlugins, "PodGroup")
}

// The real scheduler of Volcano.
func TestVolcano(t *testing.T) {
	controllerOf(t, "volcano")
	allOrNone(t, "volcano", v1alpha1.GangVolcano, "2 Insufficient cpu") // of the pod that has no room
}

// allOrNone: with a gang scheduler, no pod of a job is placed while only one has room, and the
// job quotes the scheduler's message. All its pods start when there is room.
func allOrNone(t *testing.T, scheduler string, kind v1alpha1.Gang, words string) {
	t.Helper()
	ns := restricted(t)
	free := allocatable(t)
	// One pod takes more than half of a node: next to it there is room for one more.
	half := resource.NewMilliQuantity(free*6/10, resource.DecimalSI).String()
	filler := example(ns, "filler", "probe")
	filler.Spec = idle(ns, "filler").Spec
	filler.Spec.Ranks = 1
	filler.Spec.Template.Spec.TopologySpreadConstraints = nil
	filler.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(half)}
	submit(t, filler)
	podOf(t, filler, 0)

	// Without a group, one of two pods is placed, and occupies its node without use.
	loose := gang(ns, "loose", half, "", v1alpha1.GangNone)
	submit(t, loose)
	eventually(t, func() error { return placed(t, loose, 1) })
	if err := api.Delete(t.Context(), loose); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := placed(t, loose, 0); err == nil || !strings.HasPrefix(err.Error(), "0 of 0 ") {
			return fmt.Errorf("the pods of %s are there: %w", loose.Name, err)
		}
		return nil
	})

	j := submit(t, gang(ns, "gang", half, scheduler, kind))
	eventually(t, func() error {
		if err := saying(t, j, v1alpha1.ConditionPending, v1alpha1.ReasonUnschedulable, words); err != nil {
			return err
		}
		return placed(t, j, 0)
	})
	if err := api.Delete(t.Context(), filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return placed(t, j, 2) })
	podOf(t, j, 0)
	podOf(t, j, 1)
	becomes(t, j, v1alpha1.ConditionRunning)
}

// allocatable returns the CPU of a node, in thousandths.
func allocatable(t *testing.T) int64 {
	t.Helper()
	n := new(corev1.Node)
	if err := api.Get(t.Context(), client.ObjectKey{Name: lab.Nodes()[0].Name}, n); err != nil {
		t.Fatal(err)
	}
	return n.Status.Allocatable.Cpu().MilliValue()
}

// placed returns an error unless exactly want pods of a job have a node.
func placed(t *testing.T, j *v1alpha1.MPIJob, want int) error {
	t.Helper()
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		return err
	}
	n := 0
	for _, p := range pods.Items {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	if len(pods.Items) != 2 || n != want {
		return fmt.Errorf("%d of %d pods of %s have a node, want %d", n, len(pods.Items), j.Name, want)
	}
	return nil
}
