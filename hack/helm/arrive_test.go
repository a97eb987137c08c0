package helm

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestValuesArrive checks that the chart's values about pods are in their specifications, and that
// all pods select Linux nodes.
func TestValuesArrive(t *testing.T) {
	list := render(t, everything)
	for name, arg := range map[string]string{"outrigger-operator": "--log-level=debug", "outrigger-devplugin": "--interval=10s"} {
		p := pods(t, list)[name]
		c := &p.Containers[0]
		if c.Args[len(c.Args)-1] != arg { // the last one wins
			t.Errorf("%s: arguments %v, want %s at their end", name, c.Args, arg)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "A" && e.Value == "b" }) {
			t.Errorf("%s: variables %v", name, c.Env)
		}
		annotated := false
		for _, o := range list {
			annotated = annotated || o.GetKind() == "ServiceAccount" && o.GetName() == p.ServiceAccountName && o.GetAnnotations()["a"] == "b"
		}
		if !annotated {
			t.Errorf("%s: the ServiceAccount %s lacks its annotation", name, p.ServiceAccountName)
		}
	}
	operator := pods(t, list)["outrigger-operator"]
	if s := operator.TopologySpreadConstraints; len(s) != 1 || s[0].TopologyKey != "zone" || operator.NodeSelector["a"] != "b" || operator.PriorityClassName != "high" {
		t.Errorf("spread %+v, nodes %v, priority %s", s, operator.NodeSelector, operator.PriorityClassName)
	}
	for _, o := range list {
		if o.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		if err := decode(o, &d); err != nil {
			t.Fatal(err)
		}
		if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			t.Errorf("strategy %+v", d.Spec.Strategy)
		}
		for k, v := range d.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[k] != v {
				t.Errorf("the selector wants %s=%s, the pods have %v", k, v, d.Spec.Template.Labels)
			}
		}
	}
	for what, values := range variants {
		for name, p := range pods(t, render(t, values)) {
			if p.NodeSelector[corev1.LabelOSStable] != "linux" {
				t.Errorf("%s: %s may run on %v", what, name, p.NodeSelector)
			}
		}
	}
}

// TestSidecarResourcesArrive checks that the operator's argument has the value, which it reads in
// TestChartsResourcesReachThePods (operator/cmd/outrigger-operator).
func TestSidecarResourcesArrive(t *testing.T) {
	for values, want := range map[string]string{
		"sidecar: {resources: {limits: {cpu: 1}, requests: {cpu: 300m}}}": `--sidecar-resources={"limits":{"cpu":1},"requests":{"cpu":"300m"}}`,
		"sidecar: {resources: {requests: {cpu: 300m}}}":                   `--sidecar-resources={"requests":{"cpu":"300m"}}`,
		"": "",
	} {
		got := ""
		for _, arg := range pods(t, render(t, values))["outrigger-operator"].Containers[0].Args {
			if strings.HasPrefix(arg, "--sidecar-resources") {
				got = arg
			}
		}
		if got != want {
			t.Errorf("%q: the operator is told %s, want %s", values, got, want)
		}
	}
}

// TestAlerts checks that each alert that docs/devices.md names exists, and that each alert uses a
// metric that exists.
func TestAlerts(t *testing.T) {
	sources := ""
	for _, path := range []string{"../../devplugin/cmd/outrigger-devplugin/metrics.go", "../../operator/internal/controller/metrics.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources += string(text)
	}
	var all []string
	for _, o := range render(t, everything) {
		if o.GetKind() != "PrometheusRule" {
			continue
		}
		var rule struct {
			Spec struct {
				Groups []struct {
					Rules []struct{ Alert, Expr string }
				}
			}
		}
		raw, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &rule); err != nil {
			t.Fatal(err)
		}
		for _, g := range rule.Spec.Groups {
			for _, r := range g.Rules {
				all = append(all, r.Expr)
				_, rest, ours := strings.Cut(r.Expr, "outrigger_devplugin_")
				metric := strings.FieldsFunc(rest, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') })
				if ours && !strings.Contains(sources, `"`+metric[0]+`"`) {
					t.Errorf("%s asks for %s, which no program exports", r.Alert, metric[0])
				}
			}
		}
	}
	page, err := os.ReadFile("../../docs/devices.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(page), "Worth an alert:")
	line, _, _ = strings.Cut(line, "\n")
	if !ok || len(all) < 6 {
		t.Fatalf("docs/devices.md lists none, or the rules are %v", all)
	}
	for i, quoted := range strings.Split(line, "`") {
		metric, _, _ := strings.Cut(strings.ReplaceAll(quoted, "{", " "), " ")
		if i%2 == 1 && !slices.ContainsFunc(all, func(e string) bool { return strings.Contains(e, "outrigger_devplugin_"+metric) }) {
			t.Errorf("docs/devices.md calls %s worth an alert, and none is of it: %v", quoted, all)
		}
	}
}
