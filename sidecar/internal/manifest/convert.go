package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// kubeflow is the group of what Convert reads, and its versions.
const kubeflow = "kubeflow.org"

var kubeflowVersions = []string{"v1", "v2beta1"}

// foreign reports whether an object is a job of Kubeflow's operators, which Convert reads or
// explains.
func foreign(o map[string]any) bool {
	group, _, _ := strings.Cut(fmt.Sprint(o["apiVersion"]), "/")
	return group == kubeflow && o["kind"] == v1alpha1.Kind.Kind || strings.HasSuffix(group, "."+kubeflow) && o["kind"] == "TrainJob"
}

// Convert makes an MPIJob of one of Kubeflow's mpi-operator, and says what of it
// has no place here, or has to be looked at.
func Convert(text []byte) (converted []byte, notes []string, err error) {
	if len(text) > SizeMax {
		return nil, nil, fmt.Errorf("over %d bytes", SizeMax)
	}
	var old map[string]any
	if err := yaml.UnmarshalStrict(text, &old); err != nil {
		return nil, nil, err
	}
	group, version, _ := strings.Cut(fmt.Sprint(old["apiVersion"]), "/")
	switch {
	case old["kind"] == "TrainJob":
		return nil, nil, fmt.Errorf("a TrainJob says only what its runtime is called (%v): convert the MPIJob that the runtime's template describes, with %s/%s",
			tree(old, "spec", "runtimeRef")["name"], kubeflow, kubeflowVersions[1])
	case group != kubeflow || !slices.Contains(kubeflowVersions, version) || old["kind"] != v1alpha1.Kind.Kind:
		return nil, nil, fmt.Errorf("apiVersion %v, kind %v: want %s/%s, %s", old["apiVersion"], old["kind"], kubeflow, strings.Join(kubeflowVersions, " or "), v1alpha1.Kind.Kind)
	}
	c := conversion{old: tree(old, "spec"), spec: map[string]any{}}
	if err := c.job(); err != nil {
		return nil, nil, err
	}
	converted, err = yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind.Kind,
		"metadata": only(tree(old, "metadata"), "name", "namespace", "labels", "annotations"), "spec": c.spec,
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := Read(converted); err != nil {
		c.note("the result is not valid yet: %v", err)
	}
	return converted, c.notes, nil
}

// conversion is one in the making. Both specs are as YAML has them.
type conversion struct {
	old, spec map[string]any
	notes     []string
}

func (c *conversion) note(format string, a ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, a...))
}

func (c *conversion) job() error {
	launcher, worker := tree(c.old, "mpiReplicaSpecs", "Launcher"), tree(c.old, "mpiReplicaSpecs", "Worker")
	template := tree(worker, "template")
	if len(template) == 0 {
		template = tree(launcher, "template") // a job of the launcher alone
		c.note("there is no Worker: the launcher's template is the pods'")
	}
	containers := list(tree(template, "spec"), "containers")
	if len(containers) == 0 {
		return errors.New("no container in spec.mpiReplicaSpecs.Worker.template")
	}
	app, _ := containers[0].(map[string]any)
	if app == nil {
		return errors.New("spec.mpiReplicaSpecs.Worker.template.spec.containers[0] is no container")
	}
	run, err := c.command(launcher)
	if err != nil {
		return err
	}
	c.size(worker, &run)
	c.spec["mpi"] = c.implementation()
	c.server(app)
	if len(run.program) > 0 {
		app["command"] = run.program
		delete(app, "args")
	} else {
		c.note("command: the launcher has none, and runs the entry point of its image; write the program's own command into the container")
	}
	pod := tree(template, "spec")
	c.launcher(launcher, pod, app)
	if len(run.env) > 0 {
		app["env"] = append(list(app, "env"), run.env...)
	}
	c.devices(app)
	c.privileges(pod, app)
	pod["containers"] = []any{app}
	if len(containers) > 1 {
		c.note("dropped: %d more containers of the worker: only the application may be there", len(containers)-1)
	}
	if pod["restartPolicy"] != nil || worker["restartPolicy"] != nil {
		delete(pod, "restartPolicy")
		c.note("dropped: restartPolicy: ranks are restarted all together, see runPolicy.restartLimit")
	}
	template["spec"] = pod
	c.spec["template"] = template
	c.policy()
	c.dropped(launcher)
	return nil
}

// size says how many ranks there are. A launcher that runs as a worker has ranks, too.
func (c *conversion) size(worker map[string]any, run *started) {
	slots, pods := whole(c.old["slotsPerWorker"], 1), whole(worker["replicas"], 1)
	if launcher, _ := c.old["runLauncherAsWorker"].(bool); launcher {
		pods++
	}
	if run.perPod > 0 {
		slots = run.perPod
	}
	c.spec["ranksPerPod"], c.spec["ranks"] = slots, pods*slots
	if run.ranks > 0 {
		c.spec["ranks"] = run.ranks
	}
}

// implementation is the program's MPI. Kubeflow's default is Open MPI, which
// nobody who left it out need have meant: the program's own libraries count then.
func (c *conversion) implementation() string {
	name, _ := c.old["mpiImplementation"].(string)
	switch v1alpha1.MPI(name) {
	case v1alpha1.MPIOpenMPI, v1alpha1.MPIIntel, v1alpha1.MPIMPICH:
		return name
	case "":
	default:
		c.note("mpiImplementation %s is not known: mpi is Auto, which looks at what the program is linked to", name)
	}
	return string(v1alpha1.MPIAuto)
}

// policy takes over what both run policies have.
func (c *conversion) policy() {
	old := tree(c.old, "runPolicy")
	if old["cleanPodPolicy"] == nil && c.old["cleanPodPolicy"] != nil { // as v1 has it
		old["cleanPodPolicy"] = c.old["cleanPodPolicy"]
	}
	policy := only(old, "ttlSecondsAfterFinished", "activeDeadlineSeconds", "suspend")
	if limit := whole(old["backoffLimit"], 0); limit > 0 {
		policy["restartLimit"] = limit
		c.note("runPolicy.backoffLimit is runPolicy.restartLimit: a restart is of all ranks")
	}
	if len(policy) > 0 {
		c.spec["runPolicy"] = policy
	}
	if old["cleanPodPolicy"] != nil {
		c.note("dropped: runPolicy.cleanPodPolicy: pods that have ended stay with their logs until the job goes, the others are ended")
	}
	if old["schedulingPolicy"] != nil {
		c.note("dropped: runPolicy.schedulingPolicy: with the label kueue.x-k8s.io/queue-name Kueue admits all pods of the job or none")
	}
}

// dropped says what has no place.
func (c *conversion) dropped(launcher map[string]any) {
	for _, f := range []struct{ field, why string }{
		{"sshAuthMountPath", "no ssh is needed"},
		{"launcherCreationPolicy", "there is no launcher pod"},
		{"mainContainer", "the first container of the worker is the application"},
	} {
		if c.old[f.field] != nil {
			c.note("dropped: %s: %s", f.field, f.why)
		}
	}
	if len(launcher) > 0 {
		c.note("dropped: mpiReplicaSpecs.Launcher: there is no launcher pod; its command, variables, volumes and working directory are those of the pods")
	}
	c.note("the program runs as it is if docs/mpi.md has its MPI; its image needs that MPI, and no sshd")
}

// tree is a map within maps; empty where there is none.
func tree(m map[string]any, names ...string) map[string]any {
	for _, name := range names {
		m, _ = m[name].(map[string]any)
	}
	if m == nil {
		return map[string]any{}
	}
	return m
}

func list(m map[string]any, name string) []any {
	l, _ := m[name].([]any)
	return l
}

func only(m map[string]any, names ...string) map[string]any {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(k string, _ any) bool { return !slices.Contains(names, k) })
	return out
}

func words(l []any) []string {
	var all []string
	for _, w := range l {
		all = append(all, fmt.Sprint(w))
	}
	return all
}

// whole is a number of a file, or what holds without one.
func whole(v any, without int64) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return without
}
