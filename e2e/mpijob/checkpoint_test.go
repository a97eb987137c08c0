//go:build cluster

package mpijob

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// saving returns a job of four ranks that writes a checkpoint on SIGTERM, in a folder that its
// nodes share, and continues from it. file is the checkpoint on this machine.
func saving(t *testing.T, name string) (j *v1alpha1.MPIJob, file string) {
	t.Helper()
	//nolint:usetesting // the nodes' containers find it by this path
	dir, err := os.MkdirTemp("", "outrigger-checkpoint-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // the job's user is another one
		t.Fatal(err)
	}
	j = example(lab.Namespace(t, harness.Privileged), name, "ring", "-rounds", "2000", "-pause", "10ms", "-checkpoint", "/checkpoint/round")
	pod := &j.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "checkpoint", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "checkpoint", MountPath: "/checkpoint"})
	return j, filepath.Join(dir, "round")
}

// begun waits until the ranks of a job exchange messages.
func begun(t *testing.T, j *v1alpha1.MPIJob) {
	t.Helper()
	becomes(t, j, v1alpha1.ConditionRunning)
	eventually(t, func() error {
		if out := printed(t, j); !strings.Contains(out, "rank 0 is process") {
			return fmt.Errorf("rank 0 of %s has not begun:\n%s", j.Name, out)
		}
		return nil
	})
}

// printed returns the output of the ranks of a job's pods.
func printed(t *testing.T, j *v1alpha1.MPIJob) string {
	t.Helper()
	return kubectl(t, "logs", "-n", j.Namespace, "-l", names.LabelJob+"="+j.Name, "-c", "app", "--tail=-1")
}

// wentOn fails the test unless a job has completed from a checkpoint.
func wentOn(t *testing.T, j *v1alpha1.MPIJob, drains int32) {
	t.Helper()
	s := becomes(t, j, v1alpha1.ConditionComplete).Status
	if deref(s.Restarts) > 0 || max(deref(s.Drains), 0) != drains {
		t.Errorf("restarts %d, drains %d, want none and %d: %+v", deref(s.Restarts), deref(s.Drains), drains, s.FirstFailure)
	}
	out := printed(t, j)
	var round int
	if _, at, found := strings.Cut(out, "goes on with round "); !found {
		t.Errorf("it did not go on from its checkpoint:\n%s", out)
	} else if _, err := fmt.Sscan(at, &round); err != nil || round <= 0 {
		t.Errorf("it went on with round %d, %v", round, err)
	}
	if !strings.Contains(out, "2000 rounds") {
		t.Errorf("it did not do all its rounds:\n%s", out)
	}
}

// TestDrainWritesACheckpoint checks that the ranks of all pods have time to agree on a
// checkpoint and to write it when a node is drained. The job starts again from it, and uses no
// restart.
func TestDrainWritesACheckpoint(t *testing.T) {
	j, file := saving(t, "drained")
	begun(t, submit(t, j))
	node := podOf(t, j, 1).Spec.NodeName
	t.Cleanup(func() { // the test's own context has ended
		if err := run(context.Background(), "uncordon", node); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "drain", node, "--pod-selector="+names.LabelJob+"="+j.Name, "--delete-emptydir-data", "--timeout=90s")
	if _, err := os.Stat(file); err != nil {
		t.Error("the pods have ended without a checkpoint:", err)
	}
	kubectl(t, "uncordon", node) // the job wants a pod on each node
	wentOn(t, j, 1)
}

// TestSuspensionWritesACheckpoint: the same for a job that is suspended, and resumed.
func TestSuspensionWritesACheckpoint(t *testing.T) {
	t.Parallel()
	j, file := saving(t, "suspended")
	begun(t, submit(t, j))
	suspend := func(yes string) {
		t.Helper()
		if err := api.Patch(t.Context(), j.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"suspend":`+yes+`}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	suspend("true")
	becomes(t, j, v1alpha1.ConditionSuspended)
	eventually(t, func() error { return none(t, j) })
	if _, err := os.Stat(file); err != nil {
		t.Error("the pods have ended without a checkpoint:", err)
	}
	suspend("false")
	wentOn(t, j, 0)
}
