// Package dns is the test cluster's name server: it answers for Services, as
// "Kubernetes DNS-Based Service Discovery" (schema 1.1.0) says, addresses only.
// A cluster's usual name server is 540 packages to build, among them a client of
// another Kubernetes version; for the names that jobs use, this suffices.
package dns

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Domain is the cluster's DNS domain.
const Domain = "cluster.local"

// name is a query for a Service, or for one endpoint of a headless Service.
type name struct{ host, service, namespace string }

// parseName reads service.namespace.svc.DOMAIN. and
// host.service.namespace.svc.DOMAIN., in any case (RFC 4343).
func parseName(question string) (name, bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(question), ".svc."+Domain+".")
	if !ok {
		return name{}, false
	}
	switch labels := strings.Split(rest, "."); len(labels) {
	case 2:
		return name{service: labels[0], namespace: labels[1]}, true
	case 3:
		return name{host: labels[0], service: labels[1], namespace: labels[2]}, true
	}
	return name{}, false
}

// addresses returns the addresses of n. A Service with an address of its own has
// that one (2.3.1); a headless one has its ready endpoints (2.4.1), each of
// which is also known by its host name.
func addresses(n name, service *corev1.Service, slices []*discoveryv1.EndpointSlice) []netip.Addr {
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		if n.host != "" {
			return nil
		}
		return parse(service.Spec.ClusterIPs)
	}
	var all []netip.Addr
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if ready(e) && (n.host == "" || called(e, n.host)) {
				all = append(all, parse(e.Addresses)...)
			}
		}
	}
	return all
}

// ready is true for every endpoint of a Service that publishes those that are
// not: its controller writes it so. An unknown state counts as ready
// (EndpointConditions in discovery.k8s.io/v1).
func ready(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// called reports whether an endpoint has this host name: its pod's, or its
// address with hyphens when the pod has none.
func called(e discoveryv1.Endpoint, host string) bool {
	if e.Hostname != nil && *e.Hostname != "" {
		return *e.Hostname == host
	}
	return len(e.Addresses) > 0 && strings.ReplaceAll(e.Addresses[0], ".", "-") == host
}

func parse(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
			all = append(all, a)
		}
	}
	return all
}
