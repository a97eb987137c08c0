package desired

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Policies say who may reach the sidecars of jobs.
type Policies struct {
	Operator    string                           // the operator's namespace
	MetricsFrom []networkingv1.NetworkPolicyPeer // who else may read metrics and reports
}

// NetworkPolicy shuts the sidecars' two ports to all but those that need them,
// if the operator makes such policies; else it is nil. All other ports of the
// pods are the application's, and as open as they were.
func (a *Attempt) NetworkPolicy() *networkingv1.NetworkPolicy {
	p := a.Options.Policies
	if p == nil {
		return nil
	}
	own := &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelJob: a.Job.Name}}
	operator := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.Operator}}}
	asking := append([]networkingv1.NetworkPolicyPeer{operator, {PodSelector: own}}, p.MetricsFrom...)
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: a.meta(a.Job.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *own, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{PodSelector: own}}, Ports: []networkingv1.NetworkPolicyPort{ports(corev1.ProtocolTCP, names.PortPeers, names.PortPeers)}},
				{From: asking, Ports: []networkingv1.NetworkPolicyPort{ports(corev1.ProtocolTCP, names.PortMetrics, names.PortMetrics)}},
				{Ports: []networkingv1.NetworkPolicyPort{
					ports(corev1.ProtocolTCP, 1, names.PortPeers-1), ports(corev1.ProtocolTCP, names.PortPeers+1, names.PortMetrics-1),
					ports(corev1.ProtocolTCP, names.PortMetrics+1, portMax), ports(corev1.ProtocolUDP, 1, portMax), ports(corev1.ProtocolSCTP, 1, portMax),
				}},
			},
		},
	}
}

const portMax = 65535

// ports are those from first to last.
func ports(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	from := intstr.FromInt32(first)
	p := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &from}
	if last > first {
		p.EndPort = &last
	}
	return p
}
