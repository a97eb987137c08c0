package desired

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Policies configure the network policies of jobs. The chart passes them as JSON.
type Policies struct {
	// Operator is the operator's namespace, and Pods are the labels of its pods.
	Operator string            `json:"-"`
	Pods     map[string]string `json:"operatorPods"`
	// MetricsFrom may read metrics and reports, in addition to the operator.
	MetricsFrom []networkingv1.NetworkPolicyPeer `json:"metricsFrom"`
	// OtherPorts are the open ports of the application. All others are closed.
	OtherPorts []OtherPort `json:"otherPorts"`
	// Egress is EgressRestricted if the pods of jobs may only connect to what the job
	// needs. Otherwise, the policies do not cover egress.
	Egress string `json:"egress"`
}

// Values of Policies.Egress.
const (
	EgressOpen       = "Open"
	EgressRestricted = "Restricted"
)

// OtherPort is a port or a range of ports of the application, with the peers that may
// connect to it; no peers: all may.
type OtherPort struct {
	Port     int32                            `json:"port"`
	EndPort  int32                            `json:"endPort"`  // 0: Port
	Protocol corev1.Protocol                  `json:"protocol"` // empty: TCP
	From     []networkingv1.NetworkPolicyPeer `json:"from"`
}

const portMax = 65535

// ParsePolicies parses Policies. operator is the operator's namespace.
func ParsePolicies(text, operator string) (*Policies, error) {
	p := &Policies{Operator: operator}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("%w; want an object such as {\"operatorPods\":{\"app\":\"operator\"},\"metricsFrom\":[],\"otherPorts\":[]}", err)
	}
	if !slices.Contains([]string{"", EgressOpen, EgressRestricted}, p.Egress) {
		return nil, fmt.Errorf("egress is %q, want %s or %s", p.Egress, EgressOpen, EgressRestricted)
	}
	for i := range p.OtherPorts {
		o := &p.OtherPorts[i]
		if o.EndPort == 0 {
			o.EndPort = o.Port
		}
		if o.Protocol == "" {
			o.Protocol = corev1.ProtocolTCP
		}
		if o.Port < 1 || o.EndPort > portMax || o.EndPort < o.Port {
			return nil, fmt.Errorf("otherPorts has %d to %d, want ports from 1 to %d", o.Port, o.EndPort, portMax)
		}
		if o.Protocol == corev1.ProtocolUDP && o.Port == names.PortPeers && o.EndPort == o.Port {
			return nil, fmt.Errorf("otherPorts has %d by UDP, which is the sidecar's; leave it out", o.Port)
		}
		for _, ours := range []int32{names.PortPeers, names.PortMetrics} {
			if o.Protocol == corev1.ProtocolTCP && o.Port <= ours && ours <= o.EndPort {
				return nil, fmt.Errorf("otherPorts has %d to %d, and port %d is the sidecar's; leave it out", o.Port, o.EndPort, ours)
			}
		}
	}
	return p, nil
}

// NetworkPolicy returns a policy that admits the connections that the job needs, if the
// operator makes such policies; nil otherwise. Policies are additive: in a namespace
// that denies by default, this one opens the job's ports; in other namespaces, it
// closes all other ports of the job's pods.
func (a *Attempt) NetworkPolicy() *networkingv1.NetworkPolicy {
	p := a.Options.Policies
	if p == nil {
		return nil
	}
	own := metav1.LabelSelector{MatchLabels: map[string]string{names.LabelJob: a.Job.Name}}
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: own, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: p.ingress(&own, a.Options.LocalMetrics),
	}
	if p.Egress == EgressRestricted {
		spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		spec.Egress = p.egress(&own)
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: a.meta(a.Job.Name), Spec: spec,
	}
}

// operator returns the peer that selects the operator's pods.
func (p *Policies) operator() networkingv1.NetworkPolicyPeer {
	peer := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: p.Operator}}}
	if len(p.Pods) > 0 {
		peer.PodSelector = &metav1.LabelSelector{MatchLabels: p.Pods}
	}
	return peer
}

func (p *Policies) ingress(own *metav1.LabelSelector, localMetrics bool) []networkingv1.NetworkPolicyIngressRule {
	rules := []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: own}}, Ports: peerPorts()},
	}
	if !localMetrics { // otherwise, the port serves only health to the kubelet, which policies do not block
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			From: append([]networkingv1.NetworkPolicyPeer{p.operator()}, p.MetricsFrom...), Ports: []networkingv1.NetworkPolicyPort{ports(corev1.ProtocolTCP, names.PortMetrics, names.PortMetrics)},
		})
	}
	for i := range p.OtherPorts {
		o := &p.OtherPorts[i]
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: o.From, Ports: o.ports()})
	}
	return rules
}

// egress returns the destinations of a job's pods: each other, the issuer, and name
// servers. Name servers may be pods behind another port, or not pods at all, so their
// rule is by port only.
func (p *Policies) egress(own *metav1.LabelSelector) []networkingv1.NetworkPolicyEgressRule {
	var dns []networkingv1.NetworkPolicyPort
	for _, port := range []int32{53, 5353} {
		dns = append(dns, ports(corev1.ProtocolUDP, port, port), ports(corev1.ProtocolTCP, port, port))
	}
	return []networkingv1.NetworkPolicyEgressRule{
		{To: []networkingv1.NetworkPolicyPeer{{PodSelector: own}}, Ports: peerPorts()},
		{To: []networkingv1.NetworkPolicyPeer{p.operator()}, Ports: []networkingv1.NetworkPolicyPort{ports(corev1.ProtocolTCP, names.PortIssuer, names.PortIssuer)}},
		{Ports: dns},
	}
}

// peerPorts returns the port at which a sidecar listens for its peers, by TCP, and by UDP for
// the transport ether.
func peerPorts() []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{
		ports(corev1.ProtocolTCP, names.PortPeers, names.PortPeers), ports(corev1.ProtocolUDP, names.PortPeers, names.PortPeers),
	}
}

// ports returns the ports without the UDP port of sidecars, which stays closed to others
// within a range that the application uses. For TCP, ParsePolicies refuses such a range.
func (o *OtherPort) ports() (list []networkingv1.NetworkPolicyPort) {
	if o.Protocol != corev1.ProtocolUDP || names.PortPeers < o.Port || o.EndPort < names.PortPeers {
		return append(list, ports(o.Protocol, o.Port, o.EndPort))
	}
	if o.Port < names.PortPeers {
		list = append(list, ports(o.Protocol, o.Port, names.PortPeers-1))
	}
	if names.PortPeers < o.EndPort {
		list = append(list, ports(o.Protocol, names.PortPeers+1, o.EndPort))
	}
	return list
}

// ports returns the range of ports from first to last.
func ports(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	from := intstr.FromInt32(first)
	p := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &from}
	if last > first {
		p.EndPort = &last
	}
	return p
}
