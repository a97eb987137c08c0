//go:build cluster

package mpijob

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// An operator of one namespace, whose sidecars serve metrics only inside their pods: it has no
// rights in other namespaces, runs the jobs of its namespace and ignores others. Other pods
// can read a sidecar's health only; its own pod can read everything.
func TestNarrowed(t *testing.T) {
	ns, other := restricted(t), restricted(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := install(ctx); err != nil {
			t.Error(err)
		}
	})
	if out, err := helm(t.Context(), "upgrade", "outrigger", "../../charts/outrigger", "--reset-then-reuse-values", "--wait", "--timeout=150s",
		"--set=operator.watchNamespaces={"+ns+"},sidecar.metrics=Loopback").CombinedOutput(); err != nil {
		t.Fatalf("helm: %v\n%s", err, out)
	}
	for namespace, want := range map[string]string{ns: "yes", other: "no"} {
		for _, ask := range []string{"list pods", "create jobs.batch", "create configmaps", "create services", "list mpijobs.outrigger.dev", "patch mpijobs.outrigger.dev --subresource=status"} {
			args := append([]string{"auth", "can-i", "-n", namespace, "--as=system:serviceaccount:" + release + ":outrigger-operator"}, strings.Fields(ask)...)
			out, err := lab.Kubectl(t.Context(), args...).Output()
			if strings.TrimSpace(string(out)) != want { // no is an error, too
				t.Errorf("may the operator %s in %s? %s%v, want %s", ask, namespace, out, err, want)
			}
		}
	}

	left := submit(t, example(other, "left", "ring", "-rounds", "20"))
	j := submit(t, idle(ns, "quiet"))
	p, second := podOf(t, j, 0), podOf(t, j, 1)
	host, own := "http://"+p.Status.PodIP, "http://127.0.0.1"
	outside, inside := []string{}, []string{}
	for _, path := range []string{"/metrics", "/report", "/why"} {
		outside = append(outside, fmt.Sprint(host, ":", names.PortMetrics, path), fmt.Sprint(host, ":", names.PortMetricsLocal, path))
		inside = append(inside, fmt.Sprint(own, ":", names.PortMetricsLocal, path))
	}
	probe := func(pod string, urls ...string) string {
		return kubectl(t, append([]string{"exec", "-n", ns, pod, "-c", "app", "--", "/usr/local/bin/probe", "fetch"}, urls...)...)
	}
	for line := range strings.Lines(probe(second.Name, outside...)) {
		if strings.Contains(line, " 200 ") {
			t.Errorf("another pod reads %s", line)
		}
	}
	for line := range strings.Lines(probe(p.Name, inside...)) {
		if !strings.Contains(line, " 200 ") {
			t.Errorf("who is in the pod does not read %s", line)
		}
	}
	if said := probe(second.Name, fmt.Sprint(host, ":", names.PortMetrics, "/healthz")); !strings.Contains(said, " 200 ") {
		t.Errorf("the kubelet does not see health: %s", said)
	}
	if s := becomes(t, submit(t, example(ns, "runs", "ring", "-rounds", "20")), v1alpha1.ConditionComplete).Status; strings.Join(s.Transports, "") != "tcp" {
		t.Errorf("the transports of a job that is over: %v", s.Transports)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(left), left); err != nil {
		t.Fatal(err)
	}
	if c := left.Status.Conditions; meta.FindStatusCondition(c, v1alpha1.ConditionPending) != nil || len(c) != 0 {
		t.Errorf("a job of a namespace that is not watched: %+v", c)
	}
}
