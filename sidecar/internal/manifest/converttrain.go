package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Names of Kubeflow's Trainer.
const (
	trainerGroup   = "trainer." + kubeflow
	trainerVersion = trainerGroup + "/v1alpha1"
	trainJobKind   = "TrainJob"
	clusterRuntime = "ClusterTrainingRuntime"
)

// launcherJob and nodeJob are the names of the replicatedJobs of an MPI runtime of Trainer,
// and of their containers that run the program.
const launcherJob, nodeJob = "launcher", "node"

// training is a TrainJob and its runtime, with the job's patches applied to the runtime's
// template.
type training struct {
	c                 *conversion
	spec, policy      map[string]any // spec of the job, and mlPolicy of the runtime
	template          map[string]any // copy of the runtime's template
	is                string         // kind and name of the runtime
	launcher, node    map[string]any // replicatedJobs
	deadline, retries any            // fields of the launcher's Job; the restart limit of the JobSet takes precedence
	ttl, suspend      any            // fields of the JobSet
}

// trainJob reads a TrainJob with its runtime, which it returns: launcher and nodes become
// those of an MPIJob.
func (c *conversion) trainJob(job *object, objects []object) (*object, error) {
	t := &training{c: c, spec: tree(job.tree, "spec")}
	if version := job.tree["apiVersion"]; version != trainerVersion {
		return nil, fmt.Errorf("apiVersion %v of %s %s: want %s", version, trainJobKind, job.name, trainerVersion)
	}
	if t.spec["initializer"] != nil {
		return nil, errors.New("spec.initializer cannot be converted: download by an init container of the runtime's node template, or before the job, and remove it")
	}
	if err := errors.Join(
		unknown("spec", t.spec, "runtimeRef", "trainer", "suspend", "activeDeadlineSeconds", "managedBy", "labels", "annotations", "podTemplateOverrides", "runtimePatches"),
		unknown("spec.trainer", tree(t.spec, "trainer"), "image", "command", "args", "env", "numNodes", "resourcesPerNode", "numProcPerNode"),
		formed[bool]("spec", t.spec, "suspend"), formed[string]("spec", t.spec, "managedBy"), formed[int64]("spec.trainer", tree(t.spec, "trainer"), "numNodes", "numProcPerNode"),
		formed[string]("spec.runtimeRef", tree(t.spec, "runtimeRef"), "name", "kind", "apiGroup"),
	); err != nil {
		return nil, err
	}
	o, err := t.runtime(job, objects)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{t.patch, t.jobSet, t.gang} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return o, t.mpiJob()
}

// runtime finds the runtime of a job in the file.
func (t *training) runtime(job *object, objects []object) (*object, error) {
	ref := tree(t.spec, "runtimeRef")
	kind, name := clusterRuntime, fmt.Sprint(ref["name"])
	if k, _ := ref["kind"].(string); k != "" {
		kind = k
	}
	if g, _ := ref["apiGroup"].(string); g != "" && g != trainerGroup {
		return nil, fmt.Errorf("spec.runtimeRef.apiGroup is %s, want %s: only Trainer's runtimes can be converted", g, trainerGroup)
	}
	t.is = kind + " " + name
	at := slices.IndexFunc(objects, func(o object) bool {
		return o.kind == kind && o.name == name && o.tree["apiVersion"] == trainerVersion && (kind == clusterRuntime || sameNamespace(&o, job))
	})
	if at < 0 {
		namespace, _ := tree(job.tree, "metadata")["namespace"].(string)
		if kind == clusterRuntime {
			namespace = ""
		} else if namespace != "" {
			namespace = " -n " + namespace
		}
		return nil, fmt.Errorf("%s, which %s %s is made from, is not in the file: add it after a line of three dashes (kubectl get %s %s%s -o yaml)", t.is, trainJobKind, job.name, strings.ToLower(kind), name, namespace)
	}
	spec := runtime.DeepCopyJSON(tree(objects[at].tree, "spec"))
	t.policy, t.template = tree(spec, "mlPolicy"), tree(spec, "template")
	if t.policy["mpi"] == nil {
		others := slices.DeleteFunc(slices.Sorted(maps.Keys(t.policy)), func(k string) bool { return k == "numNodes" })
		has := "no policy"
		if len(others) > 0 {
			has = "the policy " + strings.Join(others, ", ")
		}
		return nil, fmt.Errorf("%s has %s in spec.mlPolicy, and not mpi: its nodes run no MPI program by an mpirun, and cannot be converted", t.is, has)
	}
	t.c.old = map[string]any{"podGroupPolicy": spec["podGroupPolicy"]}
	return &objects[at], errors.Join(
		unknown(t.is+": spec", spec, "mlPolicy", "template", "podGroupPolicy"),
		unknown(t.is+": spec.mlPolicy", t.policy, "numNodes", "mpi"),
		unknown(t.is+": spec.mlPolicy.mpi", tree(t.policy, "mpi"), "numProcPerNode", "mpiImplementation", "sshAuthMountPath", "runLauncherAsNode"),
		formed[int64](t.is+": spec.mlPolicy", t.policy, "numNodes"), formed[int64](t.is+": spec.mlPolicy.mpi", tree(t.policy, "mpi"), "numProcPerNode"),
		formed[string](t.is+": spec.mlPolicy.mpi", tree(t.policy, "mpi"), "mpiImplementation"), formed[bool](t.is+": spec.mlPolicy.mpi", tree(t.policy, "mpi"), "runLauncherAsNode"),
		unknown(t.is+": spec.template", t.template, "metadata", "spec"),
	)
}

func sameNamespace(a, b *object) bool {
	x, y := tree(a.tree, "metadata")["namespace"], tree(b.tree, "metadata")["namespace"]
	return x == nil || y == nil || fmt.Sprint(x) == fmt.Sprint(y)
}

// patch applies the job's patches of pods to the runtime's template: podTemplateOverrides,
// and runtimePatches, which replaced them.
func (t *training) patch() error {
	var missing []string
	for i, v := range list(t.spec, "podTemplateOverrides") {
		o, _ := v.(map[string]any)
		if err := unknown(fmt.Sprintf("spec.podTemplateOverrides[%d]", i), o, "targetJobs", "metadata", "spec"); err != nil {
			return err
		}
		for _, target := range list(o, "targetJobs") {
			name, _ := target.(map[string]any)
			t.lay(map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{
				"name": name["name"], "template": map[string]any{"spec": map[string]any{"template": only(o, "metadata", "spec")}},
			}}}}, &missing)
		}
	}
	for i, v := range list(t.spec, "runtimePatches") {
		p, _ := v.(map[string]any)
		path := fmt.Sprintf("spec.runtimePatches[%d]", i)
		if err := errors.Join(unknown(path, p, "manager", "time", "trainingRuntimeSpec"), unknown(path+".trainingRuntimeSpec", tree(p, "trainingRuntimeSpec"), "template")); err != nil {
			return err
		}
		t.lay(tree(p, "trainingRuntimeSpec", "template"), &missing)
	}
	if missing != nil {
		return fmt.Errorf("%s has no %s, which spec.podTemplateOverrides or spec.runtimePatches change: write the name that the runtime has", t.is, strings.Join(missing, ", "))
	}
	for _, from := range []map[string]any{tree(t.template, "metadata"), t.spec} {
		t.c.labels, _ = merged(t.c.labels, tree(from, "labels"), "", nil).(map[string]any)
		t.c.annotations, _ = merged(t.c.annotations, tree(from, "annotations"), "", nil).(map[string]any)
	}
	return nil
}

// lay applies a patch to the template. Each target gets a copy, which later patches may
// change.
func (t *training) lay(patch map[string]any, missing *[]string) {
	t.template, _ = merged(t.template, runtime.DeepCopyJSON(patch), "", missing).(map[string]any)
}

// gang copies the PodGroup of the runtime.
func (t *training) gang() error {
	policy := tree(t.c.old, "podGroupPolicy")
	path := t.is + ": spec.podGroupPolicy"
	switch {
	case policy["coscheduling"] != nil:
		t.c.old["gang"] = string(v1alpha1.GangSchedulerPlugins)
	case policy["volcano"] != nil:
		t.c.old["gang"] = string(v1alpha1.GangVolcano)
	}
	for kind, field := range map[string]string{"coscheduling": "scheduleTimeoutSeconds", "volcano": "networkTopology"} {
		if tree(policy, kind)[field] != nil {
			t.c.note("dropped: %s.%s.%s: see runPolicy.pendingDeadlineSeconds, and affinities of the template", path, kind, field)
		}
	}
	if t.c.old["gang"] != nil {
		t.c.note("podGroupPolicy is runPolicy.gang: set the template's schedulerName to the scheduler that reads PodGroups")
	}
	return errors.Join(unknown(path, policy, "coscheduling", "volcano"),
		unknown(path+".coscheduling", tree(policy, "coscheduling"), "scheduleTimeoutSeconds"), unknown(path+".volcano", tree(policy, "volcano"), "networkTopology"))
}
