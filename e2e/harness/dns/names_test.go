package dns

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestNames(t *testing.T) {
	for question, want := range map[string]name{
		"job.hpc.svc.cluster.local.":        {service: "job", namespace: "hpc"},
		"Rank-0.Job.hpc.SVC.cluster.local.": {host: "rank-0", service: "job", namespace: "hpc"},
		"job.hpc.svc.":                      {},
		"hpc.svc.cluster.local.":            {},
		"a.b.c.d.svc.cluster.local.":        {},
		"example.org.":                      {},
		".":                                 {},
	} {
		got, ok := parseName(question)
		if got != want || ok != (want != name{}) {
			t.Errorf("%s is read as %+v, %t; want %+v", question, got, ok, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	headless := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	balanced := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.79.1.1", ClusterIPs: []string{"10.79.1.1", "fd00::1"}}}
	slices := []*discoveryv1.EndpointSlice{
		{Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.78.1.2"}, Hostname: new("rank-0"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
			{Addresses: []string{"10.78.1.3"}, Hostname: new("rank-1"), Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		}},
		{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.78.2.2"}}}},
	}
	for _, c := range []struct {
		what    string
		service *corev1.Service
		host    string
		want    []string
	}{
		{"a Service's own address, IPv4 only", balanced, "", []string{"10.79.1.1"}},
		{"no hosts behind a Service's own address", balanced, "rank-0", nil},
		{"every endpoint that is ready or not known not to be", headless, "", []string{"10.78.1.2", "10.78.2.2"}},
		{"one by its host name", headless, "rank-0", []string{"10.78.1.2"}},
		{"not the one that is not ready", headless, "rank-1", nil},
		{"one without a host name by its address", headless, "10-78-2-2", []string{"10.78.2.2"}},
		{"only the host name of one that has one", headless, "10-78-1-2", nil},
	} {
		var got []string
		for _, a := range addresses(name{host: c.host, service: "job", namespace: "hpc"}, c.service, slices) {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// someAddresses returns n different addresses.
func someAddresses(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = netip.AddrFrom4([4]byte{10, 78, byte(i >> 8), byte(i)})
	}
	return all
}
