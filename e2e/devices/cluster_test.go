//go:build cluster

package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/devices/sight"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// patience is how long a test waits for an event that must occur. It bounds a hang, and is no
// measure of speed.
const patience = 3 * time.Minute

// rig is a test's own namespaces and its use of one node, on which at most one
// agent runs at a time.
type rig struct {
	t                 *testing.T
	c                 *harness.Cluster
	node              *harness.Node
	namespace, system string // of the test's pods, of the agent
	agentName         string
	agents            int
	pods              []string
}

// newRig makes namespaces, the one of the pods with a Pod Security level.
func newRig(t *testing.T, level string) *rig {
	t.Helper()
	c, err := harness.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes := c.Nodes()
	r := &rig{t: t, c: c, node: nodes[len(nodes)-1]}
	r.namespace, r.system = c.Namespace(t, level), c.Namespace(t, harness.Privileged)
	// The devices of a pod are free when the pod is deleted, and not when its namespace is
	// being deleted.
	t.Cleanup(func() {
		for _, name := range r.pods {
			if t.Failed() {
				t.Log(name + r.why(name))
			}
			r.remove(r.namespace, name)
		}
	})
	return r
}

// await repeats a call until it returns no error.
func (r *rig) await(what string, try func() error) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// allocatable waits until the node has this many units of a resource at the API server.
func (r *rig) allocatable(name string, want int64) {
	r.t.Helper()
	r.await(name, func() error {
		n, err := r.c.Client.CoreV1().Nodes().Get(r.t.Context(), r.node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have := n.Status.Allocatable[corev1.ResourceName(name)]
		if have.Value() != want {
			return fmt.Errorf("%s has %s allocatable, not %d", r.node.Name, have.String(), want)
		}
		return nil
	})
}

// nothingAllocatable waits until the kubelet reports no device of the agent.
func (r *rig) nothingAllocatable() {
	r.t.Helper()
	r.await("the kubelet without the agent", func() error {
		n, err := r.c.Client.CoreV1().Nodes().Get(context.Background(), r.node.Name, metav1.GetOptions{}) // also after the test
		if err != nil {
			return err
		}
		for name, have := range n.Status.Allocatable {
			if strings.Contains(string(name), "/") && have.Value() != 0 {
				return fmt.Errorf("%s has %s of %s allocatable", r.node.Name, have.String(), name)
			}
		}
		return nil
	})
}

// pod describes a pod like one of a job: a native sidecar that holds devices,
// and an application that has none.
type pod struct {
	devices map[string]int64
	labels  map[string]string
	user    int64
	// sidecar and application are arguments of the holder.
	sidecar, application []string
	// change, if it is not nil, changes the pod before it is created.
	change func(*corev1.PodSpec)
}

func (p *pod) container(name, image string, args []string, limits corev1.ResourceList) corev1.Container {
	no, yes, isRoot := false, true, p.user == 0
	notRoot := !isRoot
	return corev1.Container{
		Name: name, Image: image, Args: args, Resources: corev1.ResourceRequirements{Limits: limits},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsUser: &p.user, RunAsNonRoot: &notRoot,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// run makes a pod on the rig's node, by the scheduler, and returns its name.
func (r *rig) run(p *pod) string {
	r.t.Helper()
	limits := corev1.ResourceList{}
	for name, n := range p.devices {
		limits[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	image, always, zero := r.c.Image("holder"), corev1.ContainerRestartPolicyAlways, int64(0)
	sidecar := p.container("outrigger", image, append([]string{"-stay"}, p.sidecar...), limits)
	sidecar.RestartPolicy = &always
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", len(r.pods)), Labels: p.labels},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: r.node.Name}, RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &zero,
			InitContainers:                []corev1.Container{sidecar},
			Containers:                    []corev1.Container{p.container("app", image, append([]string{"-stay"}, p.application...), nil)},
		},
	}
	if p.change != nil {
		p.change(&made.Spec)
	}
	if _, err := r.c.Client.CoreV1().Pods(r.namespace).Create(r.t.Context(), made, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.pods = append(r.pods, made.Name)
	return made.Name
}

// see waits for the report of a container about its devices, and returns it.
func (r *rig) see(name, container string) *sight.Sight {
	r.t.Helper()
	s := &sight.Sight{}
	r.await(name+"/"+container, func() error {
		text, err := r.c.Client.CoreV1().Pods(r.namespace).GetLogs(name, &corev1.PodLogOptions{Container: container}).DoRaw(r.t.Context())
		if err != nil {
			return err
		}
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(s); err != nil {
			return fmt.Errorf("%w in %q%s", err, text, r.why(name))
		}
		return nil
	})
	return s
}

// why describes the state of a pod, for the message of a failure.
func (r *rig) why(name string) string {
	p, err := r.c.Client.CoreV1().Pods(r.namespace).Get(context.Background(), name, metav1.GetOptions{}) // also after the test
	if err != nil {
		return "; " + err.Error()
	}
	return fmt.Sprintf("; pod is %s: %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
}

// remove deletes a pod and waits until it is gone.
func (r *rig) remove(namespace, name string) {
	r.t.Helper()
	pods := r.c.Client.CoreV1().Pods(namespace)
	ctx := context.Background() // also when the test's own has ended
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		r.t.Error(err)
		return
	}
	r.await("the end of "+name, func() error {
		switch _, err := pods.Get(ctx, name, metav1.GetOptions{}); {
		case err == nil:
			return errors.New("it is still there")
		case !apierrors.IsNotFound(err):
			return err
		}
		return nil
	})
}

// cgroupRoot returns the kubelet's cgroup root, from its configuration.
func (r *rig) cgroupRoot() string {
	r.t.Helper()
	text, err := os.ReadFile(r.node.Path("kubelet.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^cgroupRoot: (\S+)$`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "/"
}

// metric returns the value of one of the agent's metrics, which it reads through the API
// server.
func (r *rig) metric(ctx context.Context, name string) (string, error) {
	text, err := r.c.Client.CoreV1().Pods(r.system).ProxyGet("http", r.agentName, fmt.Sprint(agentPort), "metrics", nil).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "outrigger_devplugin_"+name+" "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no metric %s", name)
}

// awaitMetric waits until a metric has the value.
func (r *rig) awaitMetric(name, want string) {
	r.t.Helper()
	r.await(name, func() error {
		got, err := r.metric(r.t.Context(), name)
		if err == nil && got != want {
			err = fmt.Errorf("it is %s, not %s", got, want)
		}
		return err
	})
}

// hostPath returns a volume and its mount.
func hostPath(name, host, container string, readOnly bool) (corev1.Volume, corev1.VolumeMount) {
	kind := corev1.HostPathDirectoryOrCreate
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host, Type: &kind}}},
		corev1.VolumeMount{Name: name, MountPath: container, ReadOnly: readOnly}
}

// grantDir is the directory of the agent's socket on the node.
var grantDir = filepath.Dir(names.GrantSocket)
