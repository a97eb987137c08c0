package helm

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// words are values that YAML takes for something else than a string if it does not quote
// them.
const words = `
images: {registry: "1e3", tag: "1.10", pullSecrets: ["123", "on"]}
operator: {image: "10", priorityClassName: "true", watchNamespaces: ["007", "1e9"], labels: {x: "true"}, annotations: {x: "1"}}
sidecar: {image: "a: b"}
webhook: {enabled: true, namespaceSelector: {matchLabels: {x: "on"}}}
devicePlugin: {enabled: true, image: "null", priorityClassName: "1", kubeletDir: "/a: b", cdiDir: "/{c}", injection: cdi, grant: {enabled: true, criSocket: "/d #e/f", cgroupRoot: "/g: h"}}
monitoring: {operatorToken: {enabled: true, secret: "123"}, rules: {enabled: true}, podMonitors: {enabled: true}, dashboard: {enabled: true}}
tests: {image: "0x10"}
`

// TestStringsStayStrings: whatever a string of the values says, of a release whose name
// and namespace are numbers, it arrives as a string, and no object becomes something else.
func TestStringsStayStrings(t *testing.T) {
	list, _, err := RenderAs("123", "1e6", words)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if err := known(o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if labels, _, err := unstructured.NestedStringMap(o.Object, "metadata", "labels"); err != nil || labels["app.kubernetes.io/instance"] == "" && o.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s %s has the labels %v: %v", o.GetKind(), o.GetName(), labels, err)
		}
	}
	p := pods(t, list)
	operator, agent := p["outrigger-operator"], p["outrigger-devplugin"]
	if operator.PriorityClassName != "true" || operator.Containers[0].Image != "10" || operator.ImagePullSecrets[0].Name != "123" {
		t.Errorf("the operator is %+v", operator)
	}
	for _, want := range []string{"--sidecar-image=a: b", "--watch-namespaces=007,1e9"} {
		if !slices.Contains(operator.Containers[0].Args, want) {
			t.Errorf("the operator's arguments are %q, want %q", operator.Containers[0].Args, want)
		}
	}
	if agent.PriorityClassName != "1" || !slices.Contains(agent.Containers[0].Args, "--cgroup-root=/g: h") || agent.Containers[0].Image != "null" {
		t.Errorf("the agent is %+v", agent)
	}
	paths := map[string]string{}
	for _, v := range agent.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	if paths["device-plugins"] != "/a: b/device-plugins" || paths["cdi"] != "/{c}" || paths["cri"] != "/d #e" {
		t.Errorf("the agent's paths are %v", paths)
	}
}

// TestOwnLabelsStay: a label or an annotation of the values that is one of the chart's
// does not replace it, nor make the object one that no parser reads.
func TestOwnLabelsStay(t *testing.T) {
	const theirs = `{app.kubernetes.io/part-of: theirs, helm.sh/chart: theirs, kubectl.kubernetes.io/default-container: theirs, outrigger.dev/config: theirs, more: theirs}`
	values := strings.ReplaceAll(`
operator: {labels: THEIRS, annotations: THEIRS}
devicePlugin: {enabled: true, labels: THEIRS, annotations: THEIRS}
monitoring: {rules: {enabled: true, labels: THEIRS}, podMonitors: {enabled: true, labels: THEIRS}, dashboard: {enabled: true, labels: THEIRS}}
`, "THEIRS", theirs)
	found := 0
	for _, o := range render(t, values) {
		maps := []map[string]string{o.GetLabels()}
		labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		annotations, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
		for _, m := range append(maps, labels) {
			if m["more"] == "" {
				continue
			}
			found++
			if m["app.kubernetes.io/part-of"] != "outrigger" || m["helm.sh/chart"] == "theirs" {
				t.Errorf("%s %s has the labels %v", o.GetKind(), o.GetName(), m)
			}
		}
		own := map[string]string{"Deployment": "kubectl.kubernetes.io/default-container", "DaemonSet": "outrigger.dev/config"}[o.GetKind()]
		if own != "" && (annotations[own] == "theirs" || annotations["more"] != "theirs") {
			t.Errorf("%s %s has the annotations %v", o.GetKind(), o.GetName(), annotations)
		}
	}
	if found != 7 { // two workloads, three monitors, rules and the dashboard
		t.Errorf("the labels are on %d objects", found)
	}
}

// TestTrialWhereJobsAreRun: helm test makes its job in a namespace whose MPIJobs are run,
// and may.
func TestTrialWhereJobsAreRun(t *testing.T) {
	for values, home := range map[string]string{
		"": Namespace, "operator: {watchNamespaces: [hpc, lab]}": "hpc", "operator: {watchNamespaces: [hpc, " + Namespace + "]}": Namespace,
	} {
		list := render(t, values)
		if args := pods(t, list)["outrigger-trial"].Containers[0].Args; !slices.Contains(args, "--namespace="+home) {
			t.Errorf("%q: the trial's arguments are %v, want namespace %s", values, args, home)
		}
		for _, o := range list {
			if o.GetName() != "outrigger-trial" {
				continue
			}
			want := Namespace
			if o.GetKind() == "Role" || o.GetKind() == "RoleBinding" {
				want = home
			}
			if o.GetNamespace() != want {
				t.Errorf("%q: %s is in namespace %s, want %s", values, o.GetKind(), o.GetNamespace(), want)
			}
		}
	}
}
