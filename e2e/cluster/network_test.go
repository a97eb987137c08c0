//go:build cluster

package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// Pods of two nodes reach each other by address, by the names of a headless
// Service, and by a Service's own address.
func TestPodsOfTwoNodesReachEachOther(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	nodes := lab.Nodes()
	services(t, namespace, "server", "headless", "balanced")

	server := pod("server", nodes[1].Name, probe("serve", "serve", ":7000"))
	server.Spec.Hostname, server.Spec.Subdomain = "rank-0", "headless"
	create(t, namespace, server)
	address := await(t, namespace, "server", running).Status.PodIP

	names := map[string]string{
		"address":  address,
		"headless": "headless",
		"host":     "rank-0.headless." + namespace + ".svc",
		"full":     "rank-0.headless." + namespace + ".svc.cluster.local",
		"balanced": "balanced",
	}
	client := pod("client", nodes[0].Name)
	for name, host := range names {
		client.Spec.Containers = append(client.Spec.Containers, probe(name, "dial", host+":7000"))
	}
	client.Spec.Containers = append(client.Spec.Containers, probe("lookup", "lookup", "rank-0.headless"))
	create(t, namespace, client)
	from := await(t, namespace, "client", ended).Status.PodIP

	want := "rank-0 on " + nodes[1].Name + " to " + from + ":"
	for name, host := range names {
		if got := said(t, namespace, "client", name); !strings.HasPrefix(got, want) {
			t.Errorf("%s answered %q, want %q...", host, got, want)
		}
	}
	if got := strings.TrimSpace(said(t, namespace, "client", "lookup")); got != address {
		t.Errorf("rank-0.headless is %q, want %q", got, address)
	}
}

// services makes a headless and an ordinary Service before a pod.
func services(t *testing.T, namespace, selected, headless, balanced string) {
	t.Helper()
	for name, address := range map[string]string{headless: corev1.ClusterIPNone, balanced: ""} {
		_, err := lab.Client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: address,
				Selector:  map[string]string{"name": selected},
				Ports:     []corev1.ServicePort{{Port: 7000}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("service %s: %v", name, err)
		}
	}
}
