package desired

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// endpoint is one end of a connection, as network policies see it.
type endpoint struct {
	namespace string
	labels    map[string]string
}

var (
	rank     = endpoint{"hpc", map[string]string{names.LabelJob: "cg"}}
	other    = endpoint{"hpc", map[string]string{names.LabelJob: "other"}}
	stranger = endpoint{"hpc", map[string]string{"app": "web"}}
	operator = endpoint{"outrigger-system", map[string]string{"app.kubernetes.io/name": "outrigger-operator"}}
	neighbor = endpoint{"outrigger-system", map[string]string{"app": "web"}}
	scraper  = endpoint{"monitoring", map[string]string{"app": "prometheus"}}
	resolver = endpoint{"kube-system", map[string]string{"k8s-app": "kube-dns"}}
)

func selects(t *testing.T, s *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	by, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return by.Matches(labels.Set(set))
}

// admits evaluates the peers and ports of one rule of a policy (networking.k8s.io/v1).
func admits(t *testing.T, namespace string, peers []networkingv1.NetworkPolicyPeer, list []networkingv1.NetworkPolicyPort, far endpoint, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	from := len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		in := far.namespace == namespace
		if p.NamespaceSelector != nil {
			in = selects(t, p.NamespaceSelector, map[string]string{corev1.LabelMetadataName: far.namespace})
		}
		return in && (p.PodSelector == nil || selects(t, p.PodSelector, far.labels))
	})
	return from && (len(list) == 0 || slices.ContainsFunc(list, func(p networkingv1.NetworkPolicyPort) bool {
		is := corev1.ProtocolTCP
		if p.Protocol != nil {
			is = *p.Protocol
		}
		if is != protocol || p.Port == nil {
			return is == protocol
		}
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		return p.Port.IntVal <= port && port <= last
	}))
}

// allowed evaluates all policies for a connection of a pod. If no policy selects the pod for
// the direction, the connection is allowed; otherwise, one of the policies must admit it.
func allowed(t *testing.T, all []networkingv1.NetworkPolicy, in bool, near, far endpoint, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	direction := networkingv1.PolicyTypeEgress
	if in {
		direction = networkingv1.PolicyTypeIngress
	}
	isolated := false
	for i := range all {
		p := &all[i]
		if p.Namespace != near.namespace || !selects(t, &p.Spec.PodSelector, near.labels) || !slices.Contains(p.Spec.PolicyTypes, direction) {
			continue
		}
		isolated = true
		if in && slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return admits(t, p.Namespace, r.From, r.Ports, far, protocol, port)
		}) {
			return true
		}
		if !in && slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return admits(t, p.Namespace, r.To, r.Ports, far, protocol, port)
		}) {
			return true
		}
	}
	return !isolated
}

// denial returns the policy with which a namespace denies all connections by default.
func denial() networkingv1.NetworkPolicy {
	p := networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}}
	p.Namespace = "hpc"
	return p
}

func policyOf(t *testing.T, text string) networkingv1.NetworkPolicy {
	t.Helper()
	a := attempt("cg", 4, 2)
	a.Job.Namespace = "hpc"
	var err error
	if a.Options.Policies, err = ParsePolicies(text, "outrigger-system"); err != nil {
		t.Fatal(err)
	}
	return *a.NetworkPolicy()
}

const (
	operatorPods = `"operatorPods":{"app.kubernetes.io/name":"outrigger-operator"}`
	scrapers     = `"metricsFrom":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]`
)

type connection struct {
	in       bool
	far      endpoint
	protocol corev1.Protocol
	port     int32
	want     bool
}

func check(t *testing.T, name string, all []networkingv1.NetworkPolicy, list []connection) {
	t.Helper()
	for _, c := range list {
		if got := allowed(t, all, c.in, rank, c.far, c.protocol, c.port); got != c.want {
			t.Errorf("%s: in %v, %v, %s %d: admitted %v, want %v", name, c.in, c.far, c.protocol, c.port, got, c.want)
		}
	}
}

// TestNetworkPolicy: the policy of a job admits the connections that the job needs and no
// others, alone and together with a policy that denies by default.
func TestNetworkPolicy(t *testing.T) {
	if attempt("cg", 4, 2).NetworkPolicy() != nil {
		t.Error("a policy that was not asked for")
	}
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	ingress := []connection{
		{true, rank, tcp, names.PortPeers, true},
		{true, other, tcp, names.PortPeers, false},
		{true, stranger, tcp, names.PortPeers, false},
		{true, operator, tcp, names.PortPeers, false},
		{true, operator, tcp, names.PortMetrics, true},
		{true, scraper, tcp, names.PortMetrics, true},
		{true, neighbor, tcp, names.PortMetrics, false},
		{true, rank, tcp, names.PortMetrics, false},
		{true, stranger, tcp, names.PortMetrics, false},
		{true, stranger, tcp, 8888, false},
		{true, rank, tcp, 8888, false},
		{true, rank, udp, names.PortPeers, true},
		{true, stranger, udp, names.PortPeers, false},
		{true, other, udp, names.PortPeers, false},
		{true, stranger, corev1.ProtocolSCTP, 1, false},
	}
	restricted := []connection{
		{false, rank, tcp, names.PortPeers, true},
		{false, rank, udp, names.PortPeers, true},
		{false, other, tcp, names.PortPeers, false},
		{false, other, udp, names.PortPeers, false},
		{false, rank, tcp, 8888, false},
		{false, operator, tcp, names.PortIssuer, true},
		{false, neighbor, tcp, names.PortIssuer, false},
		{false, operator, tcp, names.PortMetrics, false},
		{false, resolver, udp, 53, true},
		{false, resolver, tcp, 5353, true},
		{false, stranger, tcp, 443, false},
	}
	closed := policyOf(t, `{`+operatorPods+`,`+scrapers+`}`)
	check(t, "alone", []networkingv1.NetworkPolicy{closed}, append(slices.Clone(ingress), connection{false, stranger, tcp, 443, true}))
	check(t, "with a denial", []networkingv1.NetworkPolicy{closed, denial()}, append(slices.Clone(ingress), connection{false, stranger, tcp, 443, false}, connection{false, resolver, udp, 53, false}))
	egress := policyOf(t, `{`+operatorPods+`,`+scrapers+`,"egress":"Restricted"}`)
	check(t, "egress", []networkingv1.NetworkPolicy{egress}, slices.Concat(ingress, restricted))
	check(t, "egress with a denial", []networkingv1.NetworkPolicy{egress, denial()}, slices.Concat(ingress, restricted))
	open := policyOf(t, `{`+operatorPods+`,"otherPorts":[{"port":8888},{"port":5000,"endPort":5010,"protocol":"UDP","from":[{"podSelector":{"matchLabels":{"outrigger.dev/job-name":"cg"}}}]}]}`)
	for _, all := range [][]networkingv1.NetworkPolicy{{open}, {open, denial()}} {
		check(t, "other ports", all, []connection{
			{true, stranger, tcp, 8888, true},
			{true, stranger, tcp, 8889, false},
			{true, rank, udp, 5010, true},
			{true, stranger, udp, 5010, false},
			{true, stranger, tcp, names.PortPeers, false},
			{true, scraper, tcp, names.PortMetrics, false},
		})
	}
	wide := policyOf(t, `{`+operatorPods+`,"otherPorts":[{"port":1024,"endPort":65535,"protocol":"UDP"}]}`)
	check(t, "a wide range", []networkingv1.NetworkPolicy{wide}, []connection{
		{true, stranger, udp, 1024, true},
		{true, stranger, udp, names.PortPeers - 1, true},
		{true, stranger, udp, names.PortPeers, false},
		{true, rank, udp, names.PortPeers, true},
		{true, stranger, udp, names.PortPeers + 1, true},
		{true, stranger, udp, 65535, true},
	})
	local := attempt("cg", 4, 2)
	local.Options.Policies, local.Options.LocalMetrics = &Policies{Operator: "outrigger-system"}, true
	if n := len(local.NetworkPolicy().Spec.Ingress); n != 1 {
		t.Errorf("%d rules where metrics are in the pod alone, want that of its peers", n)
	}
}

// TestDocumentedPolicies: the manifests in the documentation admit the connections that a job
// needs in a namespace that denies by default, if the operator makes no policies.
func TestDocumentedPolicies(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(raw), "<!-- policies: begin -->\n```yaml\n")
	text, _, ok2 := strings.Cut(text, "```\n<!-- policies: end -->")
	if !ok || !ok2 {
		t.Fatal("docs/install.md has no policies between their marks")
	}
	all := []networkingv1.NetworkPolicy{denial()}
	for doc := range strings.SplitSeq(text, "---\n") {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(doc), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	check(t, "documented", all, []connection{
		{true, rank, tcp, names.PortPeers, true},
		{true, rank, udp, names.PortPeers, true},
		{true, operator, tcp, names.PortMetrics, true},
		{true, stranger, tcp, names.PortPeers, false},
		{true, stranger, udp, names.PortPeers, false},
		{true, stranger, tcp, names.PortMetrics, false},
		{true, stranger, tcp, 8888, false},
		{false, rank, tcp, names.PortPeers, true},
		{false, rank, udp, names.PortPeers, true},
		{false, operator, tcp, names.PortIssuer, true},
		{false, resolver, udp, 53, true},
		{false, resolver, tcp, 5353, true},
		{false, stranger, tcp, 443, false},
	})
}

func TestParsePolicies(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                          "want an object",
		`{"egress":"Shut"}`:           `egress is "Shut"`,
		`{"otherPorts":[{"port":0}]}`: "want ports from 1",
		`{"otherPorts":[{"port":9,"endPort":8}]}`:         "want ports from 1",
		`{"otherPorts":[{"port":1,"endPort":65536}]}`:     "want ports from 1",
		`{"otherPorts":[{"port":1,"endPort":9000}]}`:      "port 7077 is the sidecar's",
		`{"otherPorts":[{"port":7077,"protocol":"UDP"}]}`: "7077 by UDP, which is the sidecar's",
		`{"otherPorts":[{"port":9464}]}`:                  "port 9464 is the sidecar's",
	} {
		if _, err := ParsePolicies(text, "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if p, err := ParsePolicies(`{"otherPorts":[{"port":1,"endPort":65535,"protocol":"UDP"}],"egress":"Open"}`, "x"); err != nil || p.OtherPorts[0].EndPort != 65535 {
		t.Errorf("%+v, %v", p, err)
	}
}
