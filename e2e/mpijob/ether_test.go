//go:build cluster

package mpijob

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A job whose small messages go by UDP and large ones by TCP has right results on two nodes.
// Nothing is encrypted for the first one, and all for the second. Its sidecars have no
// capability.
func TestEther(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	p := &v1alpha1.FabricProfile{}
	p.Namespace, p.Name = ns, "secret"
	p.Spec.Encryption = v1alpha1.EncryptionTLS
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for name, profile := range map[string]string{"ether-plain": "", "ether-secret": p.Name} {
		j := example(ns, name, "npb", "-class", "S", "cg")
		j.Spec.Transport.Type, j.Spec.ProfileName = v1alpha1.TransportEther, profile
		byPackets(t, submit(t, j), "small messages go by UDP")
	}
}

// byPackets checks that a job completes, that its results are right, and that its sidecars,
// which have no capability, have sent its small messages by a carrier.
func byPackets(t *testing.T, j *v1alpha1.MPIJob, carrier string) {
	t.Helper()
	j = becomes(t, j, v1alpha1.ConditionComplete)
	if log := says(t, j); !strings.Contains(log, "VERIFICATION SUCCESSFUL") {
		t.Errorf("%s: rank 0 says\n%s", j.Name, log)
	}
	if strings.Join(j.Status.Transports, " ") != "ether" {
		t.Errorf("%s: transports %v, want ether alone", j.Name, j.Status.Transports)
	}
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		x := &pods.Items[i]
		for _, c := range x.Spec.InitContainers {
			if s := c.SecurityContext; c.Name == names.ContainerSidecar && (s == nil || s.Capabilities == nil || len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL") {
				t.Errorf("the sidecar of %s may have capabilities: %+v", x.Name, s)
			}
		}
		log := kubectl(t, "logs", "-n", j.Namespace, x.Name, "-c", names.ContainerSidecar, "--tail=-1")
		if !strings.Contains(log, carrier) || strings.Contains(log, "no packet has come back") {
			t.Errorf("%s: the sidecar of %s does not say %q, or misses its peer by it:\n%s", j.Name, x.Name, carrier, log)
		}
	}
}

// A job whose small messages go by raw Ethernet has right results, by packet sockets that the
// node's agent makes: its sidecars have no capability. Its pods share a node, since the
// network between the test cluster's nodes is routed: on two nodes such a job uses TCP, and
// its log says why. A job without the device uses UDP.
func TestEtherRaw(t *testing.T) {
	ns := restricted(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		// Helm does not overwrite what another program has changed.
		if out, err := lab.Kubectl(ctx, "delete", "-n", release, "daemonset", "outrigger-devplugin").CombinedOutput(); err != nil {
			t.Errorf("kubectl: %v\n%s", err, out)
		}
		if err := install(ctx); err != nil {
			t.Error(err)
		}
	})
	if out, err := helm(t.Context(), "upgrade", "outrigger", "../../charts/outrigger", "--reset-then-reuse-values",
		"--set=devicePlugin.grant.enabled=true,devicePlugin.grant.rawEthernet=true,devicePlugin.grant.cgroupRoot="+podsOfNode(t)+",devicePlugin.config.pools[0].kind=ether",
		"--set=devicePlugin.env[0].name=NODE,devicePlugin.env[0].valueFrom.fieldRef.fieldPath=spec.nodeName").CombinedOutput(); err != nil {
		t.Fatalf("helm: %v\n%s", err, out)
	}
	// A machine for tests may lack SYS_RESOURCE, which the agent needs for locked memory only.
	kubectl(t, "patch", "-n", release, "daemonset", "outrigger-devplugin", "--type=json",
		`--patch=[{"op": "replace", "path": "/spec/template/spec/containers/0/securityContext/capabilities/add", "value": ["SYS_ADMIN", "NET_RAW"]}]`)
	kubectl(t, "rollout", "status", "-n", release, "daemonset", "outrigger-devplugin", "--timeout=150s")
	eventually(t, func() error {
		nodes := new(corev1.NodeList)
		if err := api.List(t.Context(), nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			if q := nodes.Items[i].Status.Allocatable[names.ResourceEther]; q.Value() < 2 {
				return fmt.Errorf("node %s offers %s of %s", nodes.Items[i].Name, q.String(), names.ResourceEther)
			}
		}
		return nil
	})
	raw := func(name string) *v1alpha1.MPIJob {
		j := example(ns, name, "npb", "-class", "S", "is")
		j.Spec.Transport.Type = v1alpha1.TransportEther
		return j
	}
	near, far, udp := raw("raw-near"), raw("raw-far"), raw("udp")
	near.Spec.Devices = []v1alpha1.DeviceRequest{{Resource: names.ResourceEther, Count: 1}}
	far.Spec.Devices = near.Spec.Devices
	near.Spec.Template.Spec.TopologySpreadConstraints = nil
	near.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	for _, j := range []*v1alpha1.MPIJob{near, far, udp} {
		submit(t, j)
	}
	byPackets(t, near, "small messages go by raw Ethernet")
	byPackets(t, udp, "small messages go by UDP")
	far = becomes(t, far, v1alpha1.ConditionComplete)
	log := kubectl(t, "logs", "-n", ns, "-l", names.LabelJob+"="+far.Name, "-c", names.ContainerSidecar, "--tail=-1")
	if strings.Join(far.Status.Transports, " ") != "tcp" || !strings.Contains(log, "raw Ethernet passes no router") {
		t.Errorf("transports of a job on two nodes: %v, and its log is\n%s", far.Status.Transports, log)
	}
}

// podsOfNode returns the kubelet's cgroup root, in which a kubelet replaces $(NODE).
func podsOfNode(t *testing.T) string {
	t.Helper()
	n, err := lab.Node("node1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.Path("kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^cgroupRoot: (\S+)node1$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("node1's kubelet has no cgroup root of its own:\n%s", text)
	}
	return string(m[1]) + "$(NODE)"
}
