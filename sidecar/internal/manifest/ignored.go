package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Ignored lists fields of a manifest that have no effect on one machine, for one reason.
type Ignored struct {
	Why    string
	Fields []string
}

// String returns the reason and the fields in one line.
func (i *Ignored) String() string { return i.Why + ": " + strings.Join(i.Fields, ", ") }

// short has the prefixes that are shortened in messages, the longest first.
var short = []struct{ path, name string }{
	{"spec.template.spec.containers[0].", "container."},
	{"spec.template.spec.", "pod."},
	{"spec.template.", "pod."},
}

// used are the fields that have an effect on one machine, with everything inside of them.
// All other fields of a manifest are reported as ignored.
var used = []string{
	"apiVersion", "kind", "metadata.name", "metadata.namespace",
	"spec.ranks", "spec.ranksPerPod", "spec.launchMode", "spec.mpi", "spec.mpiProgress", "spec.stdinFile", "spec.profileName", "spec.transport", "spec.memory",
	"spec.runPolicy.suspend", "spec.runPolicy.activeDeadlineSeconds", "spec.runPolicy.deadlockAfterSeconds", "spec.runPolicy.deadlockAction", "spec.runPolicy.restartLimit", "spec.runPolicy.restartRules",
	"container.name", "container.command", "container.args", "container.workingDir",
	"container.env[].name", "container.env[].value",
	"pod.restartPolicy", "pod.terminationGracePeriodSeconds", "pod.hostNetwork", "pod.hostPID", "pod.hostIPC", "pod.shareProcessNamespace", // the rules accept only values that hold on one machine anyway
}

// reasons are why fields are ignored, by the first two elements of their path.
var reasons = []struct {
	why    string
	fields []string
}{
	{"no containers here: the program is this machine's", []string{
		"container.command", "container.args", // if the caller gives a program
		"container.image", "container.imagePullPolicy", "pod.imagePullSecrets", "pod.runtimeClassName", "pod.os", "pod.hostname",
		"pod.subdomain", "pod.setHostnameAsFQDN", "pod.hostnameOverride", "container.ports", "container.tty", "container.stdin", "container.stdinOnce",
	}},
	{"no other containers than the program are run", []string{"pod.initContainers", "pod.ephemeralContainers"}},
	{"nothing is mounted, and nothing read from a cluster", []string{
		"pod.volumes", "container.volumeMounts", "container.volumeDevices", "container.envFrom", "container.env",
		"container.terminationMessagePath", "container.terminationMessagePolicy", "pod.hostAliases", "pod.dnsPolicy", "pod.dnsConfig", "pod.enableServiceLinks",
	}},
	{"nothing is limited, reserved or allocated", []string{
		"container.resources", "container.resizePolicy", "spec.devices", "spec.sidecar", "pod.resources", "pod.overhead", "pod.resourceClaims",
	}},
	{"it runs as you", []string{
		"pod.securityContext", "container.securityContext", "pod.serviceAccountName", "pod.serviceAccount",
		"pod.automountServiceAccountToken", "pod.hostUsers",
	}},
	{"one machine: nothing is scheduled", []string{
		"pod.nodeSelector", "pod.nodeName", "pod.affinity", "pod.tolerations", "pod.schedulerName", "pod.priorityClassName", "pod.priority",
		"pod.preemptionPolicy", "pod.topologySpreadConstraints", "pod.schedulingGates", "pod.readinessGates", "pod.schedulingGroup",
	}},
	{"no probe or hook is run: the program runs until it ends", []string{
		"container.livenessProbe", "container.readinessProbe", "container.startupProbe", "container.lifecycle", "container.restartPolicy",
		"container.restartPolicyRules", "pod.activeDeadlineSeconds",
	}},
	{"there are no pods: only variables of the container see it", []string{"pod.metadata"}},
	{"no cluster: nothing is stored, queued or drained", []string{
		"metadata", "status", "spec.managedBy", "spec.podManagement", "spec.runPolicy",
	}},
}

const otherReason = "it has no meaning here"

// ignored lists the fields that the author wrote and that have no effect on one machine, by
// reason. If the caller gives a program, the container's command is one of them.
func (f *File) ignored(overridden bool) []Ignored {
	var w walk
	if overridden {
		w.unused = append(w.unused, "container.command", "container.args")
	}
	if f.Job != nil && f.Job.Spec.PodManagement == v1alpha1.PodsExternal { // as in a cluster
		w.unused = append(w.unused, "spec.runPolicy.suspend", "spec.runPolicy.restartLimit")
	}
	w.tree("", f.written)
	var all []Ignored
	for _, r := range reasons {
		if list := w.found[r.why]; len(list) > 0 {
			all = append(all, Ignored{r.why, list})
		}
	}
	if list := w.found[otherReason]; len(list) > 0 {
		all = append(all, Ignored{otherReason, list})
	}
	if len(f.Others) > 0 {
		all = append(all, Ignored{"other objects of the file", slices.Sorted(slices.Values(f.Others))})
	}
	return all
}

// walk visits all fields of a manifest as it was written, instead of a list of the fields
// that are known to be ignored, so that no field is missed.
type walk struct {
	unused []string            // fields of used that have no effect for this job
	found  map[string][]string // by reason
}

func (w *walk) tree(path string, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		w.node(strings.TrimPrefix(path+"."+key, "."), m[key])
	}
}

func (w *walk) node(path string, value any) {
	name := shortened(path)
	plain := unnumbered(name)
	switch inside := value.(type) {
	case nil:
		return // null counts as absent
	case map[string]any:
		if strings.HasSuffix(plain, ".valueFrom") && meaningful(inside) {
			return
		}
		if leads(plain) && len(inside) > 0 {
			w.tree(path, inside)
			return
		}
	case []any:
		if leads(plain) && !w.isUsed(plain, value) {
			for i, v := range inside {
				w.node(fmt.Sprintf("%s[%s]", path, element(plain, i, v)), v)
			}
			return
		}
	}
	if !w.isUsed(plain, value) {
		w.note(name)
	}
}

// element names an entry of a list: a variable by its name, others by their number.
func element(list string, i int, v any) string {
	if m, ok := v.(map[string]any); ok && list == "container.env" {
		return fmt.Sprint(m["name"])
	}
	return fmt.Sprint(i)
}

// meaningful reports whether a variable's source has a meaning on one machine.
func meaningful(source map[string]any) bool {
	raw, err := json.Marshal(source)
	from := new(corev1.EnvVarSource)
	return err == nil && json.Unmarshal(raw, from) == nil && known(from)
}

// presets are defaults of fields that have no effect on one machine. A file may repeat
// them.
var presets = map[string]any{"spec.podManagement": "Managed", "spec.runPolicy.disruption": "Allowed", "spec.runPolicy.gang": "None"}

// isUsed reports whether a field has an effect, or only repeats a default.
func (w *walk) isUsed(plain string, value any) bool {
	if slices.Contains(w.unused, plain) {
		return false
	}
	if preset, ok := presets[plain]; ok && value == preset {
		return true
	}
	return slices.ContainsFunc(used, func(u string) bool {
		return plain == u || strings.HasPrefix(plain, u+".") || strings.HasPrefix(plain, u+"[")
	})
}

// leads reports whether a field inside of this one may have an effect.
func leads(plain string) bool {
	if slices.Contains([]string{"spec.template", "spec.template.spec", "pod.containers", "pod.containers[]", "container.env[]"}, plain) {
		return true
	}
	return slices.ContainsFunc(used, func(u string) bool { return strings.HasPrefix(u, plain+".") || strings.HasPrefix(u, plain+"[") })
}

func (w *walk) note(name string) {
	words := strings.SplitN(unnumbered(name), ".", 3)
	two := strings.TrimSuffix(strings.Join(words[:min(len(words), 2)], "."), "[]")
	why := otherReason
	for _, r := range reasons {
		if slices.Contains(r.fields, two) || slices.Contains(r.fields, words[0]) {
			why = r.why
			break
		}
	}
	if w.found == nil {
		w.found = map[string][]string{}
	}
	w.found[why] = append(w.found[why], name)
}

func shortened(path string) string {
	for _, s := range short {
		if rest, ok := strings.CutPrefix(path, s.path); ok && rest != "spec" {
			return s.name + rest
		}
	}
	return path
}

// unnumbered removes the indexes from a path: env[3] becomes env[].
func unnumbered(path string) string {
	var out strings.Builder
	inside := false
	for _, r := range path {
		if r == ']' {
			inside = false
		}
		if !inside {
			out.WriteRune(r)
		}
		if r == '[' {
			inside = true
		}
	}
	return out.String()
}
