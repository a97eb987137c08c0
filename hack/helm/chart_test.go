package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
)

// everything has values that turn on what is off by default.
const everything = `
operator:
  {priorityClassName: high, nodeSelector: {a: b}, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}, labels: {x: "y"}, annotations: {x: "y"},
  updateStrategy: {type: Recreate}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], jobNetworkPolicies: true, otherPorts: [{port: 8888}, {port: 5000, endPort: 5010, protocol: UDP, from: [{podSelector: {matchLabels: {a: b}}}]}], jobEgress: Restricted,
  extraArgs: [--log-level=debug], env: [{name: A, value: b}], serviceAccountAnnotations: {a: b}}
sidecar: {image: registry.example/sidecar@sha256:0123, logLevel: debug, metrics: Loopback, resources: {limits: {cpu: 1}}}
issuer: {checkAddress: false, reviewTokens: true}
images: {registry: registry.example/team, tag: v1.2.3, pullSecrets: [one, two]}
webhook: {enabled: true, namespaceSelector: {matchLabels: {hpc: "yes"}, matchExpressions: [{key: k, operator: Exists}]}}
devicePlugin:
  enabled: true
  extraArgs: [--interval=10s]
  env: [{name: A, value: b}]
  serviceAccountAnnotations: {a: b}
  grant: {enabled: true, rawEthernet: true}
  injection: cdi
  config:
    pools: [{kind: hca, select: {functions: [vf]}}]
    sriov: [{pf: ens1f0np0, count: 8}]
  nodeSelector: {hpc: "true"}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}]}
monitoring: {namespaceLabel: true, operatorToken: {enabled: true, secret: scraper}, rules: {enabled: true, labels: {release: prometheus}}, podMonitors: {enabled: true, labels: {release: prometheus}}, dashboard: {enabled: true, annotations: {folder: HPC}}}
`

// variants are values with which all tests of the chart run.
var variants = map[string]string{
	"default":      "",
	"everything":   everything,
	"cert-manager": "webhook: {enabled: true, certManager: {enabled: true, issuer: {name: ca, kind: ClusterIssuer}}}",
	"operator":     "devicePlugin: {enabled: false}",
	"devices":      "devicePlugin: {enabled: true}\noperator: {enabled: false}\ncrds: {install: false}",
	"no grant":     "devicePlugin: {enabled: true}",
	"grant":        "devicePlugin: {enabled: true, grant: {enabled: true}}",
	"raw Ethernet": "devicePlugin: {enabled: true, grant: {enabled: true, rawEthernet: true}, config: {pools: [{kind: hca}, {kind: ether, interface: net1, shares: 4}]}}",
	"watched":      "operator: {watchNamespaces: [hpc, lab]}",
	"one replica":  "operator: {replicas: 1, podDisruptionBudget: false}\ncrds: {keep: false}",
	"openshift":    "operator: {runAsUser: 0}\nsidecar: {runAsUser: 0}\nwebhook: {enabled: true}",
	"bare":         "networkPolicy: {enabled: false}\ntests: {enabled: false}\nroles: {aggregate: false}",
}

func render(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	list, _, err := Render(values)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// foreign kinds belong to operators whose types are not among Kubernetes' own.
var foreign = []string{"monitoring.coreos.com/v1 PodMonitor", "monitoring.coreos.com/v1 PrometheusRule", "cert-manager.io/v1 Certificate"}

// TestObjects checks that each object has only fields that Kubernetes knows, a name and our labels,
// and is in the release's namespace if its kind has one.
func TestObjects(t *testing.T) {
	for what, values := range variants {
		seen := map[string]bool{}
		for _, o := range render(t, values) {
			id := fmt.Sprintf("%s %s/%s", o.GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
			if seen[id] {
				t.Errorf("%s: %s is there twice", what, id)
			}
			seen[id] = true
			if err := known(o); err != nil {
				t.Errorf("%s: %s: %v", what, id, err)
			}
			if ns := o.GetNamespace(); ns != "" && ns != Namespace && (what != "watched" || ns != "hpc" && ns != "lab") {
				t.Errorf("%s: %s is in namespace %s", what, id, ns)
			}
			if o.GetLabels()["app.kubernetes.io/part-of"] != "outrigger" {
				t.Errorf("%s: %s has the labels %v", what, id, o.GetLabels())
			}
		}
	}
}

// TestTwoReleases: operator and agent can be two releases, as docs/install.md
// has it: no object of the cluster's is in both, which Helm would refuse.
func TestTwoReleases(t *testing.T) {
	seen := map[string]bool{}
	for _, what := range []string{"operator", "devices"} {
		for _, o := range render(t, variants[what]) {
			id := fmt.Sprintf("%s %s", o.GroupVersionKind().Kind, o.GetName())
			if o.GetNamespace() == "" && seen[id] {
				t.Errorf("%s is in both", id)
			}
			seen[id] = true
		}
	}
}

func known(o *unstructured.Unstructured) error {
	if slices.Contains(foreign, o.GetAPIVersion()+" "+o.GetKind()) {
		return nil
	}
	if o.GetKind() == "CustomResourceDefinition" {
		return decode(o, new(apiextensionsv1.CustomResourceDefinition))
	}
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return err
	}
	return decode(o, typed)
}

// pods returns the pod templates of a rendering, by name.
func pods(t *testing.T, list []*unstructured.Unstructured) map[string]*corev1.PodSpec {
	t.Helper()
	all := map[string]*corev1.PodSpec{}
	for _, o := range list {
		var d appsv1.Deployment
		var s appsv1.DaemonSet
		var p corev1.Pod
		var err error
		switch o.GetKind() {
		case "Deployment":
			err = decode(o, &d)
			all[o.GetName()] = &d.Spec.Template.Spec
		case "DaemonSet":
			err = decode(o, &s)
			all[o.GetName()] = &s.Spec.Template.Spec
		case "Pod":
			err = decode(o, &p)
			all[o.GetName()] = &p.Spec
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestRestricted: every pod but the node's agent keeps to Pod Security's level
// "restricted"; the agent has what docs/devices.md lists, and no more.
func TestRestricted(t *testing.T) {
	for what, values := range variants {
		for name, p := range pods(t, render(t, values)) {
			for _, c := range slices.Concat(p.InitContainers, p.Containers) {
				s := c.SecurityContext
				switch {
				case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
					s.Privileged != nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
					s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
					t.Errorf("%s: container %s of %s: %+v", what, c.Name, name, s)
				case name == "outrigger-devplugin":
					continue
				case s.RunAsNonRoot == nil || !*s.RunAsNonRoot || len(s.Capabilities.Add) > 0:
					t.Errorf("%s: container %s of %s: %+v", what, c.Name, name, s)
				}
				if _, limited := c.Resources.Limits[corev1.ResourceMemory]; !limited || c.Resources.Requests.Cpu().IsZero() {
					t.Errorf("%s: container %s of %s has the resources %v", what, c.Name, name, c.Resources)
				}
			}
			if name == "outrigger-devplugin" {
				continue
			}
			for _, v := range p.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: %s mounts %s of the node", what, name, v.HostPath.Path)
				}
			}
			if p.HostPID || p.HostNetwork || p.HostIPC {
				t.Errorf("%s: %s is in the node's namespaces", what, name)
			}
		}
	}
}

// TestUsers: the users of the values reach the operator, sidecars and helm test; 0 leaves
// the choice to the platform, which refuses a user outside of the namespace's range.
func TestUsers(t *testing.T) {
	for values, c := range map[string]struct{ own, sidecars int64 }{
		"": {65532, 65532},
		"operator: {runAsUser: 0}\nsidecar: {runAsUser: 0}":           {0, 0},
		"operator: {runAsUser: 1000680000}\nsidecar: {runAsUser: 77}": {1000680000, 77},
	} {
		p := pods(t, render(t, values))
		for _, name := range []string{"outrigger-operator", "outrigger-trial"} {
			s := p[name].Containers[0].SecurityContext
			for _, id := range []*int64{s.RunAsUser, s.RunAsGroup, p[name].SecurityContext.RunAsUser} {
				if id != nil && *id != c.own || c.own == 0 && id != nil {
					t.Errorf("%q: %s runs as %d", values, name, *id)
				}
			}
			if c.own != 0 && s.RunAsUser == nil {
				t.Errorf("%q: %s has no user", values, name)
			}
		}
		if want := fmt.Sprint("--sidecar-user=", c.sidecars); !slices.Contains(p["outrigger-operator"].Containers[0].Args, want) {
			t.Errorf("%q: arguments %v, want %s", values, p["outrigger-operator"].Containers[0].Args, want)
		}
		if want := fmt.Sprint("--user=", c.own); !slices.Contains(p["outrigger-trial"].Containers[0].Args, want) {
			t.Errorf("%q: arguments %v, want %s", values, p["outrigger-trial"].Containers[0].Args, want)
		}
	}
}

// TestLinux: no pod is scheduled to a node with another operating system, for any values about nodes.
func TestLinux(t *testing.T) {
	for name, p := range pods(t, render(t, everything)) {
		if p.NodeSelector["kubernetes.io/os"] != "linux" {
			t.Errorf("%s goes to %v", name, p.NodeSelector)
		}
	}
}

// TestSpread: replicas are on different nodes if that can be done, after an upgrade
// too: pods that are about to go do not count.
func TestSpread(t *testing.T) {
	spread := pods(t, render(t, ""))["outrigger-operator"].TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != corev1.LabelHostname || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway || !slices.Equal(spread[0].MatchLabelKeys, []string{"pod-template-hash"}) {
		t.Errorf("%+v", spread)
	}
}

// TestAgent: what the agent gets from the node follows from what it has to do.
func TestAgent(t *testing.T) {
	for what, c := range map[string]struct {
		values   string
		add      string
		pid, net bool
		paths    string
	}{
		"grant":    {variants["grant"], "SYS_RESOURCE", true, false, "/dev /proc/1/mountinfo /proc/1/net /run/containerd /run/outrigger-agent /sys /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources"},
		"no grant": {variants["no grant"], "", false, false, "/dev /proc/1/mountinfo /proc/1/net /sys /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources"},
		"sriov alone": {
			"devicePlugin: {enabled: true, config: {sriov: [{pf: a, count: 1}]}}", "NET_ADMIN", false, true,
			"/dev /proc/1/mountinfo /proc/1/net /sys /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources",
		},
		"raw Ethernet": {
			variants["raw Ethernet"], "SYS_RESOURCE SYS_ADMIN NET_RAW", true, false,
			"/dev /proc/1/mountinfo /proc/1/net /run/containerd /run/outrigger-agent /sys /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources",
		},
		"all": {everything, "SYS_RESOURCE SYS_ADMIN NET_RAW NET_ADMIN", true, true, "/dev /proc/1/mountinfo /proc/1/net /run/containerd /run/outrigger-agent /sys /var/lib/kubelet/device-plugins /var/lib/kubelet/pod-resources /var/run/cdi"},
	} {
		p := pods(t, render(t, c.values))["outrigger-devplugin"]
		var add, paths []string
		for _, x := range p.Containers[0].SecurityContext.Capabilities.Add {
			add = append(add, string(x))
		}
		writable := map[string]bool{}
		for _, m := range p.Containers[0].VolumeMounts {
			writable[m.Name] = !m.ReadOnly
		}
		for _, v := range p.Volumes {
			if v.HostPath != nil {
				paths = append(paths, v.HostPath.Path)
			}
		}
		slices.Sort(paths)
		if got := strings.Join(add, " "); got != c.add || p.HostPID != c.pid || p.HostNetwork != c.net || strings.Join(paths, " ") != c.paths {
			t.Errorf("%s: capabilities %q, hostPID %v, hostNetwork %v, paths %q", what, got, p.HostPID, p.HostNetwork, paths)
		}
		if writable["sys"] != c.net || writable["dev"] || writable["cri"] || writable["pod-resources"] {
			t.Errorf("%s: writable are %v", what, writable)
		}
	}
}

// TestAccess: no wildcard anywhere, and nothing that would let the operator take
// more than its code asks for.
func TestAccess(t *testing.T) {
	for what, values := range variants {
		for _, o := range render(t, values) {
			if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
				continue
			}
			var r rbacv1.ClusterRole // has the fields of both
			if err := decode(o, &r); err != nil {
				t.Fatal(err)
			}
			for _, rule := range r.Rules {
				if all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs); slices.Contains(all, "*") {
					t.Errorf("%s: %s has a wildcard: %v", what, o.GetName(), rule)
				}
				// The webhook's certificates are kept by a library that watches all
				// Secrets of the release's own namespace.
				own := o.GetKind() == "Role" && strings.Contains(values, "webhook: {enabled: true")
				if slices.Contains(rule.Resources, "secrets") && (slices.Contains(rule.Verbs, "list") || slices.Contains(rule.Verbs, "watch")) && !own {
					t.Errorf("%s: %s may list Secrets", what, o.GetName())
				}
				if slices.Contains(rule.Resources, "secrets") && o.GetKind() != "Role" {
					t.Errorf("%s: %s may touch the Secrets of every namespace: %v", what, o.GetName(), rule)
				}
				if what == "watched" && o.GetKind() == "ClusterRole" && o.GetName() == "outrigger-operator" && !slices.Equal(rule.Resources, []string{"tokenreviews"}) {
					t.Errorf("an operator of two namespaces has rights in all: %v", rule)
				}
				if slices.Contains(rule.APIGroups, "coordination.k8s.io") && o.GetKind() != "Role" {
					t.Errorf("%s: %s may take the leases of other namespaces", what, o.GetName())
				}
			}
		}
	}
}

// TestDefinitions: they are upgraded with the chart, and stay when it goes.
func TestDefinitions(t *testing.T) {
	const policy = "helm.sh/resource-policy"
	for values, want := range map[string]struct {
		n    int
		keep string
	}{"": {2, "keep"}, variants["one replica"]: {2, ""}, variants["devices"]: {0, ""}} {
		n := 0
		for _, o := range render(t, values) {
			if o.GetKind() == "CustomResourceDefinition" {
				n++
				if got := o.GetAnnotations()[policy]; got != want.keep {
					t.Errorf("%q: %s has the policy %q, want %q", values, o.GetName(), got, want.keep)
				}
			}
		}
		if n != want.n {
			t.Errorf("%q: %d definitions, want %d", values, n, want.n)
		}
	}
}

// TestImages: registry, tag and pull policy reach every image, a whole name wins,
// and the operator is told the sidecar's.
func TestImages(t *testing.T) {
	p := pods(t, render(t, everything))
	operator := p["outrigger-operator"]
	if got := operator.Containers[0].Image; got != "registry.example/team/outrigger-operator:v1.2.3" {
		t.Errorf("operator's image %s", got)
	}
	if want := "--sidecar-image=registry.example/sidecar@sha256:0123"; !slices.Contains(operator.Containers[0].Args, want) {
		t.Errorf("arguments %v, want %s", operator.Containers[0].Args, want)
	}
	if want := "--image=registry.example/team/outrigger-examples:v1.2.3"; !slices.Contains(p["outrigger-trial"].Containers[0].Args, want) {
		t.Errorf("arguments %v, want %s", p["outrigger-trial"].Containers[0].Args, want)
	}
	for _, want := range []string{"--pull-secret=one", "--pull-secret=two"} {
		if !slices.Contains(p["outrigger-trial"].Containers[0].Args, want) {
			t.Errorf("arguments %v, want %s: the job's pods pull from the same registry", p["outrigger-trial"].Containers[0].Args, want)
		}
	}
	for values, key := range map[string]string{
		"operator: {tolerations: [{key: a, operator: Exists}]}":                                                     "a",
		"operator: {tolerations: [{key: a, operator: Exists}]}\ntests: {tolerations: [{key: b, operator: Exists}]}": "b",
	} {
		trial := pods(t, render(t, values))["outrigger-trial"]
		if want := `--tolerations=[{"key":"` + key + `","operator":"Exists"}]`; !slices.Contains(trial.Containers[0].Args, want) || len(trial.Tolerations) != 1 || trial.Tolerations[0].Key != key {
			t.Errorf("%s: arguments %v, want %s; tolerations %v", values, trial.Containers[0].Args, want, trial.Tolerations)
		}
	}
	for name, spec := range p {
		if len(spec.ImagePullSecrets) != 2 || spec.ImagePullSecrets[1].Name != "two" {
			t.Errorf("%s pulls with %v", name, spec.ImagePullSecrets)
		}
	}
}

// TestFlags: the operator has the flags that the chart gives it.
func TestFlags(t *testing.T) {
	files, err := filepath.Glob("../../operator/cmd/outrigger-operator/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	source := ""
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source += string(raw)
	}
	p := pods(t, render(t, "sidecar: {logLevel: debug}"))
	for _, name := range []string{"outrigger-operator", "outrigger-trial"} {
		for _, arg := range p[name].Containers[0].Args {
			flag, is := strings.CutPrefix(arg, "--")
			flag, _, _ = strings.Cut(flag, "=")
			if is && !strings.Contains(source, `"`+flag+`"`) {
				t.Errorf("%s is given --%s, which it does not know", name, flag)
			}
		}
	}
}

// TestWrongValues: what a schema can find is found before anything is installed.
func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"operater: {}":                                                     "additional properties 'operater' not allowed",
		"operator: {replica: 3}":                                           "additional properties 'replica' not allowed",
		"operator: {replicas: many}":                                       "/operator/replicas",
		"operator: {replicas: 17}":                                         "/operator/replicas",
		"images: {pullPolicy: Sometimes}":                                  "/images/pullPolicy",
		"images: {registry: a/}":                                           "/images/registry",
		"devicePlugin: {config: {pools: [{kind: gpu}]}}":                   "/devicePlugin/config/pools/0/kind",
		"devicePlugin: {config: {pools: [{kind: hca, share: 2}]}}":         "additional properties 'share' not allowed",
		"devicePlugin: {config: {pools: [{kind: ether, interface: a/b}]}}": "/devicePlugin/config/pools/0/interface",
		"devicePlugin: {grant: {rawEthernet: all}}":                        "/devicePlugin/grant/rawEthernet",
		"devicePlugin: {enabled: true, grant: {enabled: true}, config: {pools: [{kind: hca}, {kind: ether}]}}": "devicePlugin.config.pools[1] is of the kind ether, which needs devicePlugin.grant.rawEthernet",
		"devicePlugin: {enabled: true, grant: {rawEthernet: true}}":                                            "devicePlugin.grant.rawEthernet needs devicePlugin.grant.enabled",
		"devicePlugin: {config: {sriov: [{pf: a}]}}":                                                           "missing property 'count'",
		"operator: {labels: {app.kubernetes.io/name: x}}":                                                      "invalid propertyName",
		"devicePlugin: {config: {pool: []}}":                                                                   "additional properties 'pool' not allowed",
		"devicePlugin: {kubeletDir: kubelet}":                                                                  "/devicePlugin/kubeletDir",
		"devicePlugin: {grant: {memlockMax: lots}}":                                                            "/devicePlugin/grant/memlockMax",
		"networkPolicy: {apiServerPorts: []}":                                                                  "/networkPolicy/apiServerPorts",
		"operator: {watchNamespaces: [hpc, hpc]}":                                                              "/operator/watchNamespaces",
		"operator: {watchNamespaces: [HPC]}":                                                                   "/operator/watchNamespaces/0",
		"sidecar: {resources: {limits: {cpu: one}}}":                                                           "/sidecar/resources/limits/cpu",
		"sidecar: {resources: {requests: {memory: 1 GiB}}}":                                                    "/sidecar/resources/requests/memory",
		"sidecar: {resources: {limits: {nvidia.com/gpu: 1}}}":                                                  "invalid propertyName 'nvidia.com/gpu'",
		"monitoring: {podMonitors: {interval: 1h}}":                                                            "/monitoring/podMonitors/interval",
		"webhook: {enabled: true, certManager: {enabled: true}}":                                               "webhook.certManager.issuer: name the issuer",

		"networkPolicy: {metricsFrom: [{namespaceSelecter: {}}]}":                  "additional properties 'namespaceSelecter' not allowed",
		"networkPolicy: {metricsFrom: [{podSelector: {matchLabel: {a: b}}}]}":      "additional properties 'matchLabel' not allowed",
		"networkPolicy: {metricsFrom: [{}]}":                                       "/networkPolicy/metricsFrom/0",
		"networkPolicy: {metricsFrom: [{podSelector: {matchLabels: {a: true}}}]}":  "/networkPolicy/metricsFrom/0/podSelector/matchLabels/a",
		"webhook: {namespaceSelector: {matchExpressions: [{key: a, op: Exists}]}}": "/webhook/namespaceSelector/matchExpressions/0",
		"webhook: {certManager: {issuer: {nam: ca}}}":                              "invalid propertyName 'nam'",
		"operator: {resources: {limits: {memory: abc}}}":                           "/operator/resources/limits/memory",
		"devicePlugin: {resources: {requests: {cpu: 1 core}}}":                     "/devicePlugin/resources/requests/cpu",
		"operator: {resources: {limit: {}}}":                                       "invalid propertyName 'limit'",
		"operator: {affinity: {nodeAfinity: {}}}":                                  "invalid propertyName 'nodeAfinity'",
		"operator: {updateStrategy: {rollingupdate: {}}}":                          "invalid propertyName 'rollingupdate'",
		"operator: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z}]}":    "missing property 'whenUnsatisfiable'",
		"operator: {env: [{name: A, val: b}]}":                                     "additional properties 'val' not allowed",
		"devicePlugin: {tolerations: [{operater: Exists}]}":                        "additional properties 'operater' not allowed",
	} {
		if _, _, err := Render(values); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ".", "/"), strings.ReplaceAll(want, ".", "/")) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// TestNotes: the next command is one for what was installed.
func TestNotes(t *testing.T) {
	for what, want := range map[string]string{
		"default": "helm test outrigger --namespace outrigger-system", "bare": "rollout status deployment/outrigger-operator", "devices": "kubectl get nodes",
	} {
		_, notes, err := Render(variants[what])
		if err != nil || !strings.Contains(notes, want) {
			t.Errorf("%s: %v, want %q\n%s", what, err, want, notes)
		}
	}
}

// TestNotesNameOpenPorts: other ports of a job's pods are closed unless a value opens them.
func TestNotesNameOpenPorts(t *testing.T) {
	for values, want := range map[string]string{
		"operator: {jobNetworkPolicies: true}": " none (operator.otherPorts).",
		"operator: {jobNetworkPolicies: true, otherPorts: [{port: 8080}, {port: 9000, endPort: 9009}]}": " 8080, 9000-9009 (operator.otherPorts).",
	} {
		_, notes, err := Render(values)
		if err != nil || !strings.Contains(notes, want) {
			t.Errorf("%s: %v, want %q\n%s", values, err, want, notes)
		}
	}
}

// TestDryRunsHaveNoEffects: the webhook writes events about pods that it refuses, and the API
// server sends it no dry run for which it would.
func TestDryRunsHaveNoEffects(t *testing.T) {
	seen := 0
	for _, o := range render(t, "webhook: {enabled: true}") {
		if o.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hooks {
			seen++
			if effects := h.(map[string]any)["sideEffects"]; effects != "NoneOnDryRun" {
				t.Errorf("side effects %v, want NoneOnDryRun", effects)
			}
		}
	}
	if seen == 0 {
		t.Error("no webhook")
	}
}

func TestLint(t *testing.T) {
	for what, values := range variants {
		v := map[string]any{}
		if err := unmarshal(values, &v); err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(Chart, v, Namespace).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", what, m)
			}
		}
	}
}
