package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// documents returns the objects of a file as a list, which a test can change.
func documents(t *testing.T, text string) []any {
	t.Helper()
	objects, err := split([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for i := range objects {
		all = append(all, objects[i].tree)
	}
	return all
}

// places visits each field and entry of a tree, with a function that sets it and one that
// removes it.
func places(path string, node any, visit func(path string, set func(v any), drop func())) {
	switch n := node.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(n)) {
			was := n[name]
			below := strings.TrimPrefix(path+"."+name, ".")
			visit(below, func(v any) { n[name] = v }, func() { delete(n, name) })
			n[name] = was
			places(below, was, visit)
		}
	case []any:
		for i, was := range n {
			visit(fmt.Sprintf("%s[%d]", path, i), func(v any) { n[i] = v }, func() { n[i] = nil })
			n[i] = was
			places(fmt.Sprintf("%s[%d]", path, i), was, visit)
		}
	}
}

// convertedFrom returns all output of Convert for documents.
func convertedFrom(t *testing.T, all []any) string {
	t.Helper()
	var text []string
	for _, d := range all {
		raw, err := yaml.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, string(raw))
	}
	converted, notes, err := Convert([]byte(strings.Join(text, "---\n")))
	return fmt.Sprint(string(converted), notes, err)
}

const (
	inPods     = "spec.template.spec.replicatedJobs.template.spec.template.spec."
	inLauncher = "spec.mpiReplicaSpecs.Launcher.template.spec."
)

// idle are the fields whose removal may leave the result unchanged, and why. It includes
// the fields inside of them.
var idle = map[string]string{
	"metadata.uid":                                               "the cluster's",
	"metadata.annotations":                                       "kubectl's own",
	"metadata.labels":                                            "of a runtime",
	"spec.cleanPodPolicy":                                        "is in runPolicy, too",
	"spec.runPolicy.cleanPodPolicy":                              "is in the spec, too",
	"spec.runPolicy.schedulingPolicy.minAvailable":               "the policy has a line",
	"spec.mpiReplicaSpecs.Launcher.replicas":                     "one without it, too",
	"spec.mpiReplicaSpecs.Worker.replicas":                       "mpirun has the ranks",
	"spec.mpiReplicaSpecs.Launcher.restartPolicy":                "the worker has one, too",
	"spec.mpiReplicaSpecs.Worker.restartPolicy":                  "the launcher has one, too",
	inLauncher + "nodeSelector.zone":                             "the selector has a line",
	inLauncher + "containers.image":                              "the worker's counts",
	inLauncher + "containers.name":                               "the worker's counts",
	"spec.mpiReplicaSpecs.Worker.template.spec.containers.args":  "of the ssh server",
	"spec.mpiReplicaSpecs.Worker.template.spec.containers.image": "of a container that has a line",
	"spec.managedBy":                                             "Trainer without it, too",
	"spec.runtimeRef.apiGroup":                                   "Trainer without it, too",
	"spec.runtimeRef.kind":                                       "ClusterTrainingRuntime without it, too",
	"spec.suspend":                                               "false without it, too",
	"spec.runtimePatches.manager":                                "its author",
	"spec.runtimePatches.trainingRuntimeSpec.template.metadata":  "the job has the label, too",
	"spec.labels":                                                "the patch has the label, too",
	"spec.mlPolicy.numNodes":                                     "the job has it",
	"spec.mlPolicy.mpi.numProcPerNode":                           "the job has it",
	"spec.mlPolicy.mpi.runLauncherAsNode":                        "as many pods without it",
	"spec.template.spec.network.publishNotReadyAddresses":        "the network has a line",
	"spec.template.spec.successPolicy.operator":                  "the policy has a line",
	"spec.template.spec.successPolicy.targetReplicatedJobs":      "the policy has a line",
	"spec.template.spec.replicatedJobs.dependsOn":                "all pods start before the ranks",
	"spec.template.spec.replicatedJobs.template.metadata":        "Trainer's label",
	inPods + "containers.args":                                   "of the ssh server",
	inPods + "containers.env.value":                              "the job's counts",
	inPods + "containers.image":                                  "the job's counts",
	inPods + "containers.name":                                   "the node's counts",
	inPods + "containers.readinessProbe.tcpSocket.port":          "of the ssh server",
	inPods + "securityContext":                                   "of the launcher, as the node's",
}

var numbers = regexp.MustCompile(`\[[0-9]+\]`)

// TestConvertLosesNothing checks that the removal of any one field of a file changes the
// result: the job, a note or an error. Otherwise the field would be lost silently.
func TestConvertLosesNothing(t *testing.T) {
	met := map[string]bool{}
	for _, text := range []string{pi, old, trainJob + mpiRuntime, patched(overrides), patched(patches)} {
		all := documents(t, text)
		whole := convertedFrom(t, all)
		for i, d := range all {
			places("", d, func(path string, _ func(any), drop func()) {
				drop()
				if strings.HasSuffix(path, "]") || convertedFrom(t, all) != whole {
					return
				}
				for field := numbers.ReplaceAllString(path, ""); ; field = field[:strings.LastIndex(field, ".")] {
					if idle[field] != "" {
						met[field] = true
						return
					}
					if !strings.Contains(field, ".") {
						break
					}
				}
				t.Errorf("object %d of\n%s\nis converted alike without %s", i, text, path)
			})
		}
	}
	for field := range idle {
		if !met[field] {
			t.Errorf("%s makes a difference: it is not idle", field)
		}
	}
}

// TestConvertOddValues checks that a field with a value of a wrong type is not an internal
// error.
func TestConvertOddValues(t *testing.T) {
	for _, text := range []string{pi, old, patched(overrides)} {
		all := documents(t, text)
		for _, d := range all {
			places("", d, func(_ string, set func(any), _ func()) {
				for _, odd := range []any{nil, int64(-1), []any{map[string]any{"name": map[string]any{"name": "x"}}, "x", nil}, map[string]any{"name": []any{"x"}}} {
					set(runtime.DeepCopyJSONValue(odd))
					_ = convertedFrom(t, all)
				}
			})
		}
	}
}
