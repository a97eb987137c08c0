//go:build cluster

package mpijob

import (
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
		j := example(ns, name, "npb", "-class", "S", "cg", "is")
		j.Spec.Transport.Type, j.Spec.ProfileName = v1alpha1.TransportEther, profile
		byPackets(t, submit(t, j), "small messages go by UDP")
	}
}

// byPackets checks that a job completes, that its results are right, and that its sidecars,
// which have no capability, have sent its small messages by a carrier.
func byPackets(t *testing.T, j *v1alpha1.MPIJob, carrier string) {
	t.Helper()
	j = becomes(t, j, v1alpha1.ConditionComplete)
	if log := says(t, j); strings.Count(log, "VERIFICATION SUCCESSFUL") != 2 {
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
