package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// kubeflow is the API group of the jobs that Convert reads. kubeflowVersions are the
// versions of their MPIJob.
const kubeflow = "kubeflow.org"

var kubeflowVersions = []string{"v1", "v2beta1"}

// foreign reports whether an object is a job of Kubeflow's operators, which Convert reads
// or explains.
func foreign(o map[string]any) bool {
	group, _, _ := strings.Cut(fmt.Sprint(o["apiVersion"]), "/")
	return group == kubeflow && (o["kind"] == v1alpha1.Kind.Kind || o["kind"] == trainJobKind) || strings.HasSuffix(group, "."+kubeflow) && o["kind"] == trainJobKind
}

// Convert makes an MPIJob from an MPIJob of Kubeflow's mpi-operator, or from a TrainJob
// whose runtime is in the same file. The notes name the fields that have no counterpart,
// and those that the author should check. An unknown field is an error.
func Convert(text []byte) (converted []byte, notes []string, err error) {
	objects, err := split(text)
	if err != nil {
		return nil, nil, err
	}
	var job *object
	for i := range objects {
		o := &objects[i]
		switch {
		case !foreign(o.tree):
		case job != nil:
			return nil, nil, fmt.Errorf("%s %s and %s %s: one job at a time; write each into a file of its own", job.kind, job.name, o.kind, o.name)
		default:
			job = o
		}
	}
	if job == nil {
		return nil, nil, fmt.Errorf("%s: want %s/%s, %s, or %s, %s", inFileAre(objects), kubeflow, strings.Join(kubeflowVersions, " or "), v1alpha1.Kind.Kind, trainerVersion, trainJobKind)
	}
	c := &conversion{spec: map[string]any{}, labels: tree(job.tree, "metadata", "labels"), annotations: tree(job.tree, "metadata", "annotations")}
	used := []*object{job}
	if job.kind == trainJobKind {
		from, err := c.trainJob(job, objects)
		if err != nil {
			return nil, nil, err
		}
		used = append(used, from)
	} else if err := c.mpiJob(job); err != nil {
		return nil, nil, err
	}
	if err := c.job(); err != nil {
		return nil, nil, err
	}
	for i := range objects {
		if o := &objects[i]; !slices.Contains(used, o) {
			c.note("left out: %s: it is not part of the job; apply it as it is if the job needs it", strings.TrimSpace(o.kind+" "+o.name))
		}
	}
	converted, err = yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind.Kind, "metadata": c.metadata(job), "spec": c.spec,
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := Read(converted); err != nil {
		c.note("the result is not valid yet: %v", err)
	}
	return converted, c.notes, nil
}

// inFileAre describes the objects of a file.
func inFileAre(objects []object) string {
	var all []string
	for i := range objects {
		all = append(all, fmt.Sprintf("apiVersion %v, kind %s", objects[i].tree["apiVersion"], objects[i].kind))
	}
	if len(all) == 0 {
		return "no object in the file"
	}
	return strings.Join(all, "; ")
}

// conversion is the state of a conversion. Both specs are trees as in YAML; the old one has
// the form of Kubeflow's MPIJob.
type conversion struct {
	old, spec           map[string]any
	labels, annotations map[string]any // labels and annotations of the job
	launcherIs          string         // how the file names the launcher, and the worker
	workerIs            string
	main                []string // names of the containers that run the program; if none matches, the first container does
	notes               []string
}

func (c *conversion) note(format string, a ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, a...))
}

// mpiJob reads a job of mpi-operator, of either version.
func (c *conversion) mpiJob(o *object) error {
	if _, version, _ := strings.Cut(fmt.Sprint(o.tree["apiVersion"]), "/"); !slices.Contains(kubeflowVersions, version) {
		return fmt.Errorf("apiVersion %v: want %s/%s", o.tree["apiVersion"], kubeflow, strings.Join(kubeflowVersions, " or "))
	}
	c.old, c.launcherIs, c.workerIs = tree(o.tree, "spec"), "mpiReplicaSpecs.Launcher", "spec.mpiReplicaSpecs.Worker"
	if name, _ := c.old["mainContainer"].(string); name != "" {
		c.main = []string{name}
	}
	replicas := tree(c.old, "mpiReplicaSpecs")
	wrong := []error{
		unknown("spec", c.old, "slotsPerWorker", "runLauncherAsWorker", "sshAuthMountPath", "launcherCreationPolicy", "mainContainer", "mpiImplementation", "mpiReplicaSpecs", "runPolicy", "cleanPodPolicy"),
		unknown("spec.mpiReplicaSpecs", replicas, "Launcher", "Worker"),
		unknown("spec.runPolicy", tree(c.old, "runPolicy"), "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy", "suspend", "managedBy"),
	}
	wrong = append(wrong,
		formed[int64]("spec", c.old, "slotsPerWorker"), formed[bool]("spec", c.old, "runLauncherAsWorker"), formed[string]("spec", c.old, "mpiImplementation", "mainContainer"),
		formed[int64]("spec.runPolicy", tree(c.old, "runPolicy"), "backoffLimit"), formed[string]("spec.runPolicy", tree(c.old, "runPolicy"), "managedBy"))
	for _, name := range []string{"Launcher", "Worker"} {
		path, of := "spec.mpiReplicaSpecs."+name, tree(replicas, name)
		wrong = append(wrong, unknown(path, of, "replicas", "template", "restartPolicy"), formed[int64](path, of, "replicas"))
	}
	if n := whole(tree(replicas, "Launcher")["replicas"], 1); n != 1 {
		wrong = append(wrong, fmt.Errorf("spec.mpiReplicaSpecs.Launcher.replicas is %d, want 1: a job has one mpirun", n))
	}
	return errors.Join(wrong...)
}

// metadata returns the metadata of the new job, without what kubectl wrote about the old
// one.
func (c *conversion) metadata(job *object) map[string]any {
	m := only(tree(job.tree, "metadata"), "name", "namespace")
	delete(c.annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if len(c.labels) > 0 {
		m["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		m["annotations"] = c.annotations
	}
	return m
}

// runs returns the container of a pod that runs the program, and the names of the others.
func (c *conversion) runs(pod map[string]any) (app map[string]any, others []string) {
	containers := list(pod, "containers")
	at := slices.IndexFunc(containers, func(v any) bool {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		return slices.Contains(c.main, name)
	})
	for i, v := range containers {
		m, _ := v.(map[string]any)
		if i == max(at, 0) {
			app = m
		} else {
			others = append(others, fmt.Sprint(m["name"]))
		}
	}
	return app, others
}

func (c *conversion) job() error {
	launcher, worker := tree(c.old, "mpiReplicaSpecs", "Launcher"), tree(c.old, "mpiReplicaSpecs", "Worker")
	template := tree(worker, "template")
	if len(template) == 0 {
		template = tree(launcher, "template") // the job has only a launcher
		c.note("there is no worker: the launcher's template is the pods'")
	}
	pod := tree(template, "spec")
	if len(list(pod, "containers")) == 0 {
		return fmt.Errorf("no container in %s.template", c.workerIs)
	}
	app, others := c.runs(pod)
	if app == nil {
		return fmt.Errorf("%s.template.spec.containers has an entry that is no container", c.workerIs)
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
	c.launcher(launcher, pod, app)
	for _, v := range run.env {
		app["env"] = merged(app["env"], []any{v}, "env", nil)
	}
	c.devices(app)
	c.privileges(pod, app)
	pod["containers"] = []any{app}
	if len(others) > 0 {
		c.note("dropped: containers of the worker: %s: only the application may be there", strings.Join(others, ", "))
	}
	if pod["restartPolicy"] != nil || worker["restartPolicy"] != nil || launcher["restartPolicy"] != nil {
		delete(pod, "restartPolicy")
		c.note("dropped: restartPolicy: ranks are restarted all together, see runPolicy.restartLimit")
	}
	template["spec"] = pod
	c.spec["template"] = template
	c.policy()
	c.dropped(launcher)
	return nil
}

// size sets the number of ranks. A launcher that runs as a worker has ranks, too.
func (c *conversion) size(worker map[string]any, run *started) {
	slots, pods := whole(c.old["slotsPerWorker"], 1), whole(worker["replicas"], 1)
	if launcher, _ := c.old["runLauncherAsWorker"].(bool); launcher && len(worker) > 0 {
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

// implementation returns the program's MPI. Kubeflow's default is Open MPI, which an author
// who left the field out need not have meant: the libraries of the program decide then.
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

// policy copies the fields that both run policies have.
func (c *conversion) policy() {
	old := tree(c.old, "runPolicy")
	if old["cleanPodPolicy"] == nil && c.old["cleanPodPolicy"] != nil { // as in v1
		old["cleanPodPolicy"] = c.old["cleanPodPolicy"]
	}
	policy := only(old, "ttlSecondsAfterFinished", "activeDeadlineSeconds", "suspend")
	if limit := whole(old["backoffLimit"], 0); limit > 0 {
		policy["restartLimit"] = limit
		c.note("runPolicy.backoffLimit is runPolicy.restartLimit: a restart is of all ranks")
	}
	if gang := c.old["gang"]; gang != nil {
		policy["gang"] = gang
	}
	if len(policy) > 0 {
		c.spec["runPolicy"] = policy
	}
	if by, _ := old["managedBy"].(string); by != "" && !slices.Contains([]string{"kubeflow.org/mpi-operator", "trainer.kubeflow.org/trainjob-controller"}, by) {
		c.spec["managedBy"] = by
	}
	if old["cleanPodPolicy"] != nil {
		c.note("dropped: runPolicy.cleanPodPolicy: pods that have ended stay with their logs until the job goes, the others are ended")
	}
	if old["schedulingPolicy"] != nil {
		c.note("dropped: runPolicy.schedulingPolicy: with the label kueue.x-k8s.io/queue-name Kueue admits all pods of the job or none")
	}
}

// dropped adds notes for the fields that have no counterpart.
func (c *conversion) dropped(launcher map[string]any) {
	for _, f := range []struct{ field, why string }{
		{"sshAuthMountPath", "no ssh is needed"},
		{"launcherCreationPolicy", "there is no launcher pod"},
		{"mainContainer", "the pods have no other container"},
	} {
		if c.old[f.field] != nil {
			c.note("dropped: %s: %s", f.field, f.why)
		}
	}
	if len(launcher) > 0 {
		c.note("dropped: %s: there is no launcher pod; its command, variables, volumes and working directory are those of the pods", c.launcherIs)
	}
	c.note("the program runs as it is if docs/mpi.md has its MPI; its image needs that MPI, and no sshd")
}
