//go:build cluster

package mpijob

import (
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// CG of the NAS Parallel Benchmarks has right results on 4 ranks on 2 nodes, in a restricted
// namespace, and kubectl shows the job's state.
func TestConjugateGradient(t *testing.T) {
	t.Parallel()
	j := submit(t, example(restricted(t), "cg", "npb", "-class", "W", "cg"))
	nodes := map[string]bool{podOf(t, j, 0).Spec.NodeName: true, podOf(t, j, 1).Spec.NodeName: true}
	j = becomes(t, j, v1alpha1.ConditionComplete)
	if len(nodes) != 2 {
		t.Errorf("the job ran on %v, want two nodes", nodes)
	}
	log := kubectl(t, "logs", "-n", j.Namespace, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "app", "--tail=-1")
	if !strings.Contains(log, "VERIFICATION SUCCESSFUL") {
		t.Errorf("rank 0 says\n%s", log)
	}
	if log := kubectl(t, "logs", "-n", j.Namespace, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "outrigger", "--tail=-1"); strings.Contains(log, "connection lost") {
		t.Errorf("the end of a job is told as a fault:\n%s", log)
	}
	if len(j.Status.Transports) != 1 || j.Status.Transports[0] != "tcp" {
		t.Errorf("transports %v, want tcp alone", j.Status.Transports)
	}
	table := kubectl(t, "get", "mpijob", "-n", j.Namespace)
	for _, word := range []string{"RANKS", "STATE", "Complete", "tcp"} {
		if !strings.Contains(table, word) {
			t.Errorf("kubectl get mpijob does not say %s:\n%s", word, table)
		}
	}
}

// The chart's own test runs a job and reports its success.
func TestTrial(t *testing.T) {
	out, err := helm(t.Context(), "test", "outrigger", "--timeout=150s", "--logs").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Complete") {
		t.Fatalf("helm test: %v\n%s", err, out)
	}
}

// Everything that the client library can do works between pods too.
func TestTour(t *testing.T) {
	t.Parallel()
	becomes(t, submit(t, example(restricted(t), "tour", "tour")), v1alpha1.ConditionComplete)
}

// A profile changes how the job runs: encrypted, streamed, blocking.
func TestProfile(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	p := &v1alpha1.FabricProfile{}
	p.Namespace, p.Name = ns, "careful"
	p.Spec.Encryption, p.Spec.WaitPolicy, p.Spec.Rendezvous = v1alpha1.EncryptionTLS, "Block", "Stream"
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	j := example(ns, "ring", "ring", "-rounds", "50")
	j.Spec.ProfileName = p.Name
	becomes(t, submit(t, j), v1alpha1.ConditionComplete)
	log := kubectl(t, "logs", "-n", ns, "-l", "batch.kubernetes.io/job-completion-index=0", "-c", "outrigger", "--tail=-1")
	if !strings.Contains(log, "encrypt=true") {
		t.Errorf("the sidecar says\n%s", log)
	}
}

// The application's container has no capability, no device, and one mount in addition to those
// of every container, although its sidecar holds a device.
func TestInside(t *testing.T) {
	m := &moody{stop: make(chan struct{})}
	m.serve(t, lab.Nodes()[0])
	ns := restricted(t)
	j := example(ns, "inside", "probe", "inside")
	j.Spec.Ranks, j.Spec.RanksPerPod = 1, 1
	j.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: moodyResource, Count: 1}}
	j.Spec.Template.Spec.Containers[0].Image = lab.Image(harness.Probe)
	becomes(t, submit(t, j), v1alpha1.ConditionComplete)
	if n := m.allocated.Load(); n != 1 {
		t.Errorf("%d containers of the pod were given a device, want the sidecar alone", n)
	}
	log := kubectl(t, "logs", "-n", ns, "-l", "outrigger.dev/job-name=inside", "-c", "app", "--tail=-1")
	capabilities, shared := 0, 0
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "[0] "))
		switch what, rest, _ := strings.Cut(line, " "); what {
		case "device":
			if !usualDevices[rest] {
				t.Errorf("the application has the device %s", rest)
			}
		case "status":
			capabilities++
			if _, mask, _ := strings.Cut(rest, "\t"); strings.Trim(mask, "0") != "" {
				t.Errorf("the application has a capability: %s", rest)
			}
		case "mountinfo":
			switch place := strings.Fields(rest)[4]; {
			case place == "/run/outrigger":
				shared++
			case !usualMount(place):
				t.Errorf("the application mounts %s", place)
			}
		}
	}
	if capabilities != 5 || shared != 1 {
		t.Errorf("%d lines of capabilities and %d shared directories, want 5 and 1:\n%s", capabilities, shared, log)
	}
}

// usualDevices are those of every container, whatever the runtime.
var usualDevices = map[string]bool{
	"/dev/null": true, "/dev/zero": true, "/dev/full": true, "/dev/random": true, "/dev/urandom": true, "/dev/tty": true,
	"/dev/termination-log": true, "/dev/ptmx": true, "/dev/pts/ptmx": true, "/dev/console": true, "/dev/pts/0": true,
}

// usualMount reports whether every container has a mount there.
func usualMount(place string) bool {
	switch place {
	case "/", "/dev", "/dev/pts", "/dev/mqueue", "/dev/shm", "/dev/termination-log", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
		"/proc", "/sys", "/sys/fs/cgroup", "/var/run/secrets/kubernetes.io/serviceaccount":
		return true
	}
	// Parts of /proc that the runtime hides, and controllers of the first cgroups.
	return strings.HasPrefix(place, "/proc/") || strings.HasPrefix(place, "/sys/")
}
