//go:build cluster

package mpijob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// example returns a job of 4 ranks, two on each node, that runs one of the examples.
func example(ns, name string, command ...string) *v1alpha1.MPIJob {
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	arena := resource.MustParse("32Mi")
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.Memory.Arena = 4, 2, &arena
	pod := &j.Spec.Template.Spec
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.Containers = []corev1.Container{{
		Name: "app", Image: lab.Image("outrigger-examples"), ImagePullPolicy: corev1.PullNever,
		Command:         append([]string{"/usr/local/bin/" + command[0]}, command[1:]...),
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
	}}
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelJob: name}},
	}}
	return j
}

// submit creates the job.
func submit(t *testing.T, j *v1alpha1.MPIJob) *v1alpha1.MPIJob {
	t.Helper()
	if err := api.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j
}

// patience is the time limit of each wait of a test.
const patience = 3 * time.Minute

// becomes waits until one condition of the job is True.
func becomes(t *testing.T, j *v1alpha1.MPIJob, condition string) *v1alpha1.MPIJob {
	t.Helper()
	now := new(v1alpha1.MPIJob)
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				continue
			}
			if c.Type == condition {
				return nil
			}
			return fmt.Errorf("job %s is %s (%s: %s), want %s", j.Name, c.Type, c.Reason, c.Message, condition)
		}
		return fmt.Errorf("job %s has no condition yet", j.Name)
	})
	return now
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// podOf returns the pod with a number, when its application runs.
func podOf(t *testing.T, j *v1alpha1.MPIJob, number int) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, func() error {
		pods := new(corev1.PodList)
		err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{
			names.LabelJob: j.Name, "batch.kubernetes.io/job-completion-index": fmt.Sprint(number),
		})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			for _, c := range p.Status.ContainerStatuses {
				if c.Name == "app" && c.State.Running != nil && p.DeletionTimestamp == nil {
					found = p
					return nil
				}
			}
		}
		return fmt.Errorf("pod %d of %s does not run", number, j.Name)
	})
	return found
}

// failed checks the first failure of a job that has failed.
func failed(t *testing.T, j *v1alpha1.MPIJob, reason string, rank int32, pod, node string) *v1alpha1.Failure {
	t.Helper()
	f := j.Status.FirstFailure
	switch {
	case f == nil:
		t.Fatalf("job %s has failed without a first failure: %+v", j.Name, j.Status)
	case f.Reason != reason || f.Rank == nil || *f.Rank != rank || !strings.HasPrefix(f.Pod, pod) || f.Node != node:
		t.Fatalf("first failure of %s: %s, rank %v, pod %s, node %s: %s\nwant %s, rank %d, pod %s, node %s",
			j.Name, f.Reason, deref(f.Rank), f.Pod, f.Node, f.Message, reason, rank, pod, node)
	}
	return f
}

func deref(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// restricted makes a namespace that admits only restricted pods.
func restricted(t *testing.T) string { return lab.Namespace(t, harness.Restricted) }
