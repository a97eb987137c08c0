//go:build cluster

package cluster

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// A pod continues while the kubelet and containerd of its node are stopped, and its status is
// reported again when they run.
func TestPodsOutliveKubeletAndContainerd(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	node := lab.Nodes()[1]
	create(t, namespace, pod("steady", node.Name, probe("c", "serve", ":7000")))
	before := await(t, namespace, "steady", running).Status.ContainerStatuses[0].ContainerID

	if err := node.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	names, err := node.Running()
	if err != nil || slices.Contains(names, "kubelet") {
		t.Errorf("after StopKubelet these run: %v (%v)", names, err)
	}
	if err := node.StartKubelet(); err != nil {
		t.Fatal(err)
	}
	if err := node.RestartContainerd(); err != nil {
		t.Fatal(err)
	}
	// A new pod completes only if kubelet and containerd work.
	create(t, namespace, pod("after", node.Name, probe("c", "report")))
	await(t, namespace, "after", ended)
	if after := await(t, namespace, "steady", running).Status.ContainerStatuses[0].ContainerID; after != before {
		t.Errorf("the pod's container was %s and is %s", before, after)
	}
}

// A node that loses its power is reported as lost, and runs pods when it is started again.
func TestLostNode(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	node := lab.Nodes()[1]
	p := pod("again", node.Name, probe("c", "serve", ":7000"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	create(t, namespace, p)
	await(t, namespace, "again", running)

	if err := node.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Running(); err == nil {
		t.Error("a node without power answers")
	}
	if err := node.WaitLost(t.Context()); err != nil {
		t.Error(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if err := node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, namespace, "again", func(p *corev1.Pod) error {
		if p.Status.ContainerStatuses[0].RestartCount == 0 {
			return errors.New("its container is not yet the new one")
		}
		return running(p)
	})
}
