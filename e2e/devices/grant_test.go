//go:build cluster

package devices

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/devices/sight"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

const mebi = 1 << 20

// The sidecar that holds a device gets its locked memory, up to the hard limit:
// the agent of these tests has no capability, and the sidecar its user.
func TestMemlock(t *testing.T) {
	r := newRig(t, harness.Baseline)
	r.startAgent(newTree(t), agent{})
	r.allocatable(names.ResourceHCA, 4)
	name := r.run(&pod{devices: oneOfEach, user: 0, sidecar: []string{"-lower=65536", "-ask=1048576"}})
	if s := r.see(name, "outrigger"); s.Refusal != "" || s.Memlock != mebi || s.Socket != names.GrantSocket {
		t.Errorf("%+v", s)
	}
	r.awaitMetric(`grants_total{op="memlock",outcome="granted"}`, "1")
}

// Raising the limit of another user's process needs CAP_SYS_RESOURCE; without it the answer
// names the capability.
func TestMemlockNeedsCapability(t *testing.T) {
	r := newRig(t, harness.Restricted)
	r.startAgent(newTree(t), agent{})
	r.allocatable(names.ResourceHCA, 4)
	s := r.see(r.run(&pod{devices: oneOfEach, user: noRights, sidecar: []string{"-lower=65536", "-ask=1048576"}}), "outrigger")
	if !strings.Contains(s.Refusal, "the agent needs CAP_SYS_RESOURCE") {
		t.Errorf("%+v", s)
	}
}

// All other callers are refused: a pod without a device that mounts the socket, the
// application next to a sidecar that holds a device, and a process of the node.
func TestRefusals(t *testing.T) {
	r := newRig(t, harness.Privileged)
	r.startAgent(newTree(t), agent{})
	r.allocatable(names.ResourceHCA, 4)
	name := r.stranger(oneOfEach)
	for _, container := range []string{"outrigger", "app"} {
		s := r.see(name, container)
		if container == "outrigger" && s.Refusal != "" {
			t.Errorf("who holds a device was refused: %s", s.Refusal)
		}
		if container == "app" && !strings.Contains(s.Refusal, r.namespace+"/"+name+"/app: the container was not allocated a device") {
			t.Errorf("the application: %+v", s)
		}
	}
	name = r.stranger(nil)
	for _, container := range []string{"outrigger", "app"} {
		if s := r.see(name, container); !strings.Contains(s.Refusal, "the container was not allocated a device") {
			t.Errorf("%s of a pod without a device: %+v", container, s)
		}
	}
	if s := r.onNode(); !strings.Contains(s.Refusal, "the process is in no pod") {
		t.Errorf("a process of the node: %+v", s)
	}
	r.awaitMetric(`grants_total{op="connection",outcome="refused"}`, "4")
}

// stranger runs a pod whose two containers mount the socket themselves.
func (r *rig) stranger(devices map[string]int64) string {
	r.t.Helper()
	p := &pod{devices: devices, user: 0, sidecar: []string{"-ask=4096"}, application: []string{"-ask=4096"}}
	volume, mount := hostPath("socket", grantDir, grantDir, true)
	p.change = func(s *corev1.PodSpec) {
		s.Volumes = append(s.Volumes, volume)
		for _, c := range []*corev1.Container{&s.InitContainers[0], &s.Containers[0]} {
			c.Args = append(c.Args, "-socket="+names.GrantSocket)
			if c.Name == "app" || len(devices) == 0 { // the other has it from the plugin
				c.VolumeMounts = append(c.VolumeMounts, mount)
			}
		}
	}
	return r.run(p)
}

// onNode runs the holder on the node, outside of any pod, by containerd's copy
// of its image.
func (r *rig) onNode() *sight.Sight {
	r.t.Helper()
	pods, err := r.c.Client.CoreV1().Pods(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		r.t.Fatal(err)
	}
	// The program is in the root file system of every container that runs it.
	find := `for p in /proc/[0-9]*; do case "$(readlink $p/exe)" in */holder) exec $p/exe -ask=4096 -socket=` + names.GrantSocket + `;; esac; done; exit 1`
	cmd, err := r.node.Command(r.t.Context(), "sh", "-c", find)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("the holder on the node: %v, %s", err, out)
	}
	s := &sight.Sight{}
	if err := json.Unmarshal(out, s); err != nil {
		r.t.Fatalf("%v in %s", err, out)
	}
	return s
}

// An agent in its own PID namespace cannot identify callers, and refuses them.
func TestGrantNeedsHostPID(t *testing.T) {
	r := newRig(t, harness.Baseline)
	r.startAgent(newTree(t), agent{ownPIDs: true})
	r.allocatable(names.ResourceHCA, 4)
	s := r.see(r.run(&pod{devices: oneOfEach, user: 0, sidecar: []string{"-ask=4096"}}), "outrigger")
	if !strings.Contains(s.Refusal, "run the agent with hostPID: true") {
		t.Errorf("%+v", s)
	}
}

// Two sidecars of a job on one node are connected. Label and namespace identify the job, and a
// pod of another job is not found.
func TestConnection(t *testing.T) {
	r := newRig(t, harness.Restricted)
	r.startAgent(newTree(t), agent{})
	r.allocatable(names.ResourceHCA, 4)
	job := map[string]string{names.LabelJob: "solver"}
	one := r.run(&pod{devices: map[string]int64{names.ResourceHCA: 1}, user: noRights, labels: job, sidecar: []string{"-pod=1"}})
	zero := r.run(&pod{devices: map[string]int64{names.ResourceHCA: 1}, user: noRights, labels: job, sidecar: []string{"-pod=0", "-peer=1"}})
	if s := r.see(zero, "outrigger"); s.Heard != "pod 1" || s.Refusal != "" {
		t.Errorf("pod 0: %+v", s)
	}
	if s := r.see(one, "outrigger"); s.Heard != "pod 0" || s.Refusal != "" {
		t.Errorf("pod 1: %+v", s)
	}
	jobless := r.run(&pod{devices: map[string]int64{names.ResourceHCA: 1}, user: noRights, sidecar: []string{"-pod=2", "-peer=1"}})
	if s := r.see(jobless, "outrigger"); !strings.Contains(s.Refusal, "no job label") {
		t.Errorf("a pod without a job: %+v", s)
	}
}
