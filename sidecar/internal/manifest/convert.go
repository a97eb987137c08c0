package manifest

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// kubeflow is what Convert reads.
const kubeflow = "kubeflow.org/v2beta1"

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
	if old["apiVersion"] != kubeflow || old["kind"] != v1alpha1.Kind.Kind {
		return nil, nil, fmt.Errorf("apiVersion %v, kind %v: want %s, %s", old["apiVersion"], old["kind"], kubeflow, v1alpha1.Kind.Kind)
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
	run := c.command(launcher)
	slots := whole(c.old["slotsPerWorker"], 1)
	c.spec["ranksPerPod"], c.spec["ranks"] = slots, whole(worker["replicas"], 1)*slots
	if run.ranks > 0 {
		c.spec["ranks"] = run.ranks
	}
	c.spec["mpi"] = c.implementation()
	if len(run.program) > 0 {
		app["command"] = run.program
		delete(app, "args")
	} else {
		c.note("command: what the launcher runs is no mpirun; write the program's own command into the container")
	}
	if len(run.env) > 0 {
		app["env"] = append(list(app, "env"), run.env...)
	}
	pod := tree(template, "spec")
	pod["containers"] = []any{app}
	if len(containers) > 1 {
		c.note("dropped: %d more containers of the worker: only the application may be there", len(containers)-1)
	}
	if pod["restartPolicy"] != nil {
		delete(pod, "restartPolicy")
		c.note("dropped: restartPolicy: ranks are restarted all together, see runPolicy.restartLimit")
	}
	template["spec"] = pod
	c.spec["template"] = template
	c.policy()
	c.dropped(launcher)
	return nil
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
		{"runLauncherAsWorker", "there is no launcher pod"},
	} {
		if c.old[f.field] != nil {
			c.note("dropped: %s: %s", f.field, f.why)
		}
	}
	if len(launcher) > 0 {
		c.note("dropped: mpiReplicaSpecs.Launcher: there is no launcher pod; of it only the command counts")
	}
	c.note("the program runs as it is if docs/mpi.md has its MPI; its image needs that MPI, and no sshd")
}

// started is what an mpirun would start.
type started struct {
	ranks   int64
	program []any
	env     []any
}

// Programs that start MPI jobs, and their options that take values.
var (
	starters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"}
	ofOne    = []string{
		"H", "host", "hosts", "hostfile", "machinefile", "f", "map-by", "bind-to", "rank-by", "npernode", "N", "ppn", "perhost",
		"wdir", "wd", "launcher", "iface", "bootstrap", "prefix", "timeout", "output-filename",
	}
	ofTwo = []string{"mca", "gmca", "prtemca", "pmixmca"}
)

// command reads the launcher's command line.
func (c *conversion) command(launcher map[string]any) started {
	var s started
	containers := list(tree(launcher, "template", "spec"), "containers")
	if len(containers) == 0 {
		return s
	}
	first, _ := containers[0].(map[string]any)
	line := append(words(list(first, "command")), words(list(first, "args"))...)
	at := slices.IndexFunc(line, func(w string) bool { return slices.Contains(starters, path.Base(w)) })
	if at < 0 || at > 1 { // within a shell's script, nobody knows
		return s
	}
	for line = line[at+1:]; len(line) > 0 && strings.HasPrefix(line[0], "-"); {
		line = c.option(&s, line)
	}
	for _, w := range line {
		s.program = append(s.program, w)
	}
	return s
}

// option takes one of mpirun's options off a command line.
func (c *conversion) option(s *started, line []string) []string {
	name, rest := strings.TrimLeft(line[0], "-"), line[1:]
	value := func(n int) string { return strings.Join(rest[:min(n, len(rest))], " ") }
	switch {
	case slices.Contains([]string{"n", "np", "c"}, name):
		s.ranks, _ = strconv.ParseInt(value(1), 10, 32) // 0: as many as there are slots
		return rest[min(1, len(rest)):]
	case name == "x":
		s.variable(c, value(1))
		return rest[min(1, len(rest)):]
	case name == "env" || name == "genv":
		key, v, _ := strings.Cut(value(2), " ")
		s.variable(c, key+"="+v)
		return rest[min(2, len(rest)):]
	case slices.Contains(ofOne, name):
		c.note("dropped: %s %s of mpirun", line[0], value(1))
		return rest[min(1, len(rest)):]
	case slices.Contains(ofTwo, name):
		c.note("dropped: %s %s of mpirun", line[0], value(2))
		return rest[min(2, len(rest)):]
	}
	c.note("dropped: %s of mpirun", line[0])
	return rest
}

// variable is one that mpirun would give to ranks.
func (s *started) variable(c *conversion, text string) {
	name, value, given := strings.Cut(text, "=")
	if !given {
		c.note("dropped: variable %s, which mpirun copies from the launcher: write it into env if the program needs it", name)
		return
	}
	s.env = append(s.env, map[string]any{"name": name, "value": value})
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
