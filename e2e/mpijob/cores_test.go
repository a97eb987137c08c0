//go:build cluster

package mpijob

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A Guaranteed pod whose sidecar requests a whole CPU, on nodes with the static CPU manager:
// the sidecar has a core that no other container of the node has, as kubelet and kernel
// report; the application has no core of its own.
func TestSidecarHasACore(t *testing.T) {
	j := example(restricted(t), "core", "ring", "-rounds", "400", "-pause", "20ms")
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: small, Limits: small}
	j.Spec.Sidecar.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	submit(t, j)
	p := podOf(t, j, 0)
	if p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Fatalf("the pod is %s", p.Status.QOSClass)
	}
	sidecar, app := allotted(t, p)
	if len(sidecar) != 1 || len(app) != 0 {
		t.Errorf("the kubelet has given the sidecar the CPUs %v, and the application %v", sidecar, app)
	}
	eventually(t, func() error { // the CPU manager tells the runtime a moment later
		for name, want := range map[string]bool{"outrigger-sidecar": true, "outrigger-launch": false} {
			cpus, err := processors(p, name)
			if err != nil {
				return err
			}
			if alone := len(sidecar) == 1 && cpus == fmt.Sprint(sidecar[0]); alone != want {
				return fmt.Errorf("%s may run on the CPUs %s; the sidecar has %v", name, cpus, sidecar)
			}
		}
		return nil
	})
	becomes(t, j, v1alpha1.ConditionComplete)
}

// allotted returns the CPUs that the kubelet of a pod's node has assigned exclusively to its
// containers.
func allotted(t *testing.T, p *corev1.Pod) (sidecar, app []int64) {
	t.Helper()
	n, err := lab.Node(p.Spec.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+n.Path("kubelet/pod-resources/kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // only read
	all, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(), &podresources.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.PodResources {
		if r.Namespace != p.Namespace || r.Name != p.Name {
			continue
		}
		for _, c := range r.Containers {
			switch c.Name {
			case names.ContainerSidecar:
				sidecar = c.CpuIds
			case "app":
				app = c.CpuIds
			}
		}
	}
	return sidecar, app
}

// processors returns the CPUs on which a pod's process of that name may run. The nodes have
// the kernel of this machine.
func processors(p *corev1.Pod, name string) (string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return "", err
	}
	for _, file := range processes {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), string(p.UID)) {
			continue // it has ended, or is another's
		}
		dir := filepath.Dir(file)
		if program, err := os.ReadFile(filepath.Join(dir, "cmdline")); err != nil || !strings.Contains(strings.SplitN(string(program), "\x00", 2)[0], name) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if cpus, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				return strings.TrimSpace(cpus), nil
			}
		}
	}
	return "", fmt.Errorf("no process %s of pod %s", name, p.Name)
}
