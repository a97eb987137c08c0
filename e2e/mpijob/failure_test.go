//go:build cluster

package mpijob

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// long returns a job that would run for minutes.
func long(ns, name string, more ...string) *v1alpha1.MPIJob {
	return example(ns, name, append([]string{"ring", "-rounds", "100000", "-pause", "10ms"}, more...)...)
}

// A rank that exits with 3 is the first failure, with its pod, node and code, although other
// ranks fail because of it.
func TestRankExits(t *testing.T) {
	t.Parallel()
	j := submit(t, long(restricted(t), "exits", "-fail-rank", "3", "-fail-round", "100"))
	p := podOf(t, j, 1)
	j = becomes(t, j, v1alpha1.ConditionFailed)
	f := failed(t, j, "RankExited", 3, p.Name, p.Spec.NodeName)
	if f.ExitCode == nil || *f.ExitCode != 3 {
		t.Errorf("exit code %v, want 3", deref(f.ExitCode))
	}
	t.Logf("told %v after it happened", j.Status.CompletionTime.Sub(f.Time.Time)) // the lists of issues want 10 s at most
	wide := kubectl(t, "get", "mpijob", "-n", j.Namespace, "-o", "wide")
	if !strings.Contains(wide, "RankExited") {
		t.Errorf("kubectl get mpijob -o wide does not say why:\n%s", wide)
	}
}

// A rank that exits with 0 without Close fails the job, and is named, whatever the exit codes
// of the other ranks are.
func TestExitWithoutClose(t *testing.T) {
	t.Parallel()
	j := submit(t, long(restricted(t), "silent", "-fail-rank", "3", "-fail-round", "100", "-fail-code", "0"))
	p := podOf(t, j, 1)
	f := failed(t, becomes(t, j, v1alpha1.ConditionFailed), "RankVanished", 3, p.Name, p.Spec.NodeName)
	if !strings.Contains(f.Message, "Close") {
		t.Errorf("the message does not say what was forgotten: %s", f.Message)
	}
}

// The command of the container is a program that does not exist.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	j := becomes(t, submit(t, example(restricted(t), "nothing", "no-such-program")), v1alpha1.ConditionFailed)
	if f := j.Status.FirstFailure; f.Reason != "CannotStart" || !strings.Contains(f.Message, "no-such-program") {
		t.Errorf("first failure %s: %s", f.Reason, f.Message)
	}
}

// A sidecar that is killed ends the job; the sidecar that the kubelet starts in its place does
// not join.
func TestSidecarKilled(t *testing.T) {
	t.Parallel()
	j := submit(t, long(restricted(t), "killed"))
	p := podOf(t, j, 1)
	podOf(t, j, 0)
	kill(t, p, names.ContainerSidecar)
	failed(t, becomes(t, j, v1alpha1.ConditionFailed), "SidecarLost", 2, p.Name, p.Spec.NodeName)
}

// kill ends a container's processes by SIGKILL, from its node.
func kill(t *testing.T, p *corev1.Pod, container string) {
	t.Helper()
	signal(t, p, container, "SIGKILL")
}

// signal sends a signal to a container's first process, from its node.
func signal(t *testing.T, p *corev1.Pod, container, name string) {
	t.Helper()
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.Name != container {
			continue
		}
		n, err := lab.Node(p.Spec.NodeName)
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := n.Command(t.Context(), "ctr", "-n", "k8s.io", "tasks", "kill", "-s", name, strings.TrimPrefix(c.ContainerID, "containerd://"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	t.Fatalf("pod %s has no container %s", p.Name, container)
}

// TestStoppedSidecar: the sidecar of pod 0 is stopped, and rank 1 fails because of that. Pod 0
// is named as the cause, and both pods are kept with their output.
func TestStoppedSidecar(t *testing.T) {
	t.Parallel()
	j := long(restricted(t), "stopped")
	j.Spec.Ranks, j.Spec.RanksPerPod = 2, 1
	submit(t, j)
	first, second := podOf(t, j, 0), podOf(t, j, 1)
	becomes(t, j, v1alpha1.ConditionRunning)
	signal(t, first, names.ContainerSidecar, "SIGSTOP")
	f := becomes(t, j, v1alpha1.ConditionFailed).Status.FirstFailure
	if f.Pod != first.Name || !strings.Contains(f.Message, "nothing heard for") {
		t.Errorf("the first failure does not name pod 0, whose sidecar was stopped: %s, pod %s: %s", f.Reason, f.Pod, f.Message)
	}
	for _, p := range []*corev1.Pod{first, second} {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), new(corev1.Pod)); err != nil {
			t.Errorf("pod %s has gone with its output: %v", p.Name, err)
		}
	}
}

// A deleted pod is no failure of its ranks: the job starts again, and uses no restart.
func TestPodDeleted(t *testing.T) {
	t.Parallel()
	j := submit(t, long(restricted(t), "deleted"))
	p := podOf(t, j, 0)
	podOf(t, j, 1)
	if err := api.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	j = becomes(t, j, v1alpha1.ConditionRestarting)
	failed(t, j, v1alpha1.ReasonDrained, 0, p.Name, p.Spec.NodeName)
	if j = becomes(t, j, v1alpha1.ConditionRunning); deref(j.Status.Drains) != 1 || j.Status.Restarts != nil {
		t.Errorf("status %+v", j.Status)
	}
}

// A disruption budget prevents evictions of a running job's pods, and Kubernetes counts these
// pods for it.
func TestDisruptionPrevented(t *testing.T) {
	t.Parallel()
	j := long(restricted(t), "kept")
	j.Spec.RunPolicy.Disruption = v1alpha1.DisruptionPrevented
	p := podOf(t, submit(t, j), 0)
	podOf(t, j, 1)
	eventually(t, func() error {
		b := new(policyv1.PodDisruptionBudget)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), b); err != nil {
			return err
		}
		if s := b.Status; s.ExpectedPods != 2 || s.CurrentHealthy != 2 {
			return fmt.Errorf("the budget counts %d of %d pods, want 2 of 2: %+v", s.CurrentHealthy, s.ExpectedPods, s.Conditions)
		}
		return nil
	})
	if err := api.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction: %v, want a refusal", err)
	}
	becomes(t, j, v1alpha1.ConditionRunning)
}

// When a node is lost with its ranks, the other pods detect that.
func TestNodeLost(t *testing.T) {
	j := submit(t, long(restricted(t), "lost"))
	podOf(t, j, 0)
	p := podOf(t, j, 1)
	n, err := lab.Node(p.Spec.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Log(err)
		}
	})
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	started := false
	t.Cleanup(func() {
		if !started {
			_ = n.Start() // the test has failed already
		}
	})
	failed(t, becomes(t, j, v1alpha1.ConditionFailed), "SidecarLost", 2, p.Name, p.Spec.NodeName)
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	started = true
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A suspended job has no pods, and starts from the beginning when it is resumed.
func TestSuspend(t *testing.T) {
	t.Parallel()
	j := submit(t, example(restricted(t), "pause", "ring", "-rounds", "300", "-pause", "10ms"))
	podOf(t, j, 0)
	suspend := func(yes string) {
		t.Helper()
		if err := api.Patch(t.Context(), j.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"suspend":`+yes+`}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	suspend("true")
	becomes(t, j, v1alpha1.ConditionSuspended)
	eventually(t, func() error { return none(t, j) })
	suspend("false")
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; s.FirstFailure != nil || deref(s.Restarts) > 0 {
		t.Errorf("a suspension is no failure: %+v", s)
	}
}

// All ranks start again after a failure, up to the limit.
func TestRestartLimit(t *testing.T) {
	t.Parallel()
	j := long(restricted(t), "again", "-fail-rank", "1", "-fail-round", "5")
	j.Spec.RunPolicy.RestartLimit = new(int32(2))
	j = becomes(t, submit(t, j), v1alpha1.ConditionFailed)
	if deref(j.Status.Restarts) != 2 || deref(j.Status.FirstFailure.Attempt) != 2 {
		t.Errorf("%d restarts, failed in attempt %d, want 2 and 2", deref(j.Status.Restarts), deref(j.Status.FirstFailure.Attempt))
	}
	for _, c := range j.Status.Conditions {
		if c.Type == v1alpha1.ConditionFailed && !strings.Contains(c.Message, "limit") {
			t.Errorf("the limit is not named: %s", c.Message)
		}
	}
}

// If a pod does not have the required transport, the job fails with the transport's name.
func TestTransportMissing(t *testing.T) {
	advertise := func(ctx context.Context, count string) {
		for _, n := range lab.Nodes() { // as if an agent had
			patch := fmt.Sprintf(`{"status":{"capacity":{"outrigger.dev/hca-pretend":%s}}}`, count)
			if out, err := lab.Kubectl(ctx, "patch", "node", n.Name, "--subresource=status", "--type=merge", "-p", patch).CombinedOutput(); err != nil {
				t.Errorf("node %s: %v\n%s", n.Name, err, out)
			}
		}
	}
	advertise(t.Context(), `"4"`)
	t.Cleanup(func() { advertise(context.Background(), "null") })
	j := long(restricted(t), "needs")
	j.Spec.Transport = v1alpha1.TransportSpec{Type: v1alpha1.TransportRDMA, Policy: v1alpha1.TransportRequired}
	j.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: "outrigger.dev/hca-pretend", Count: 1}}
	j.Spec.RunPolicy.RestartLimit = new(int32(5))
	j = becomes(t, submit(t, j), v1alpha1.ConditionFailed)
	if f := j.Status.FirstFailure; f.Reason != "TransportMissing" || deref(j.Status.Restarts) > 0 {
		t.Errorf("first failure %s after %d restarts: %s", f.Reason, deref(j.Status.Restarts), f.Message)
	}
	eventually(t, func() error { return none(t, j) })
}

// A job that requests devices that no node has waits, reports that, and ends by its deadline.
func TestDevicesMissing(t *testing.T) {
	t.Parallel()
	j := long(restricted(t), "wants")
	j.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: "outrigger.dev/unicorn", Count: 1}}
	j.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(5))
	submit(t, j)
	eventually(t, func() error {
		return saying(t, j, v1alpha1.ConditionPending, v1alpha1.ReasonUnschedulable, "outrigger.dev/unicorn")
	})
	if f := becomes(t, j, v1alpha1.ConditionFailed).Status.FirstFailure; f.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("first failure %s: %s", f.Reason, f.Message)
	}
}
