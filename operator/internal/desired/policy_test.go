package desired

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// A job's policy names each port once: the sidecars' with who may reach them,
// all others for everybody.
func TestNetworkPolicy(t *testing.T) {
	a := attempt("cg", 4, 2)
	if a.NetworkPolicy() != nil {
		t.Error("a policy that nobody asked for")
	}
	a.Options.Policies = &Policies{Operator: "outrigger-system"}
	p := a.NetworkPolicy()
	open := map[int32]bool{}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if *port.Protocol != "TCP" {
				continue
			}
			last := port.Port.IntVal
			if port.EndPort != nil {
				last = *port.EndPort
			}
			for n := port.Port.IntVal; n <= last; n++ {
				if _, twice := open[n]; twice {
					t.Fatalf("port %d is in two rules", n)
				}
				open[n] = len(rule.From) == 0
			}
		}
	}
	for n := int32(1); n <= 65535; n++ {
		if everybody, there := open[n]; !there || everybody == (n == names.PortPeers || n == names.PortMetrics) {
			t.Fatalf("port %d: in a rule %v, open to everybody %v", n, there, everybody)
		}
	}
	if len(p.Spec.PolicyTypes) != 1 || p.Spec.PolicyTypes[0] != networkingv1.PolicyTypeIngress || p.Spec.PodSelector.MatchLabels[names.LabelJob] != "cg" {
		t.Errorf("%+v", p.Spec)
	}
}
