package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// jobSet reads the JobSet of the runtime: its launcher and its nodes. Any other
// replicatedJob, such as one that downloads data first, is an error, because the ranks
// would depend on it.
func (t *training) jobSet() error {
	set, path := tree(t.template, "spec"), t.is+": spec.template.spec"
	wrong := []error{
		unknown(path, set, "replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "suspend", "ttlSecondsAfterFinished"),
		unknown(path+".failurePolicy", tree(set, "failurePolicy"), "maxRestarts", "restartStrategy"),
		formed[int64](path+".failurePolicy", tree(set, "failurePolicy"), "maxRestarts"), formed[bool](path, set, "suspend"),
	}
	t.retries, t.ttl, t.suspend = tree(set, "failurePolicy")["maxRestarts"], set["ttlSecondsAfterFinished"], set["suspend"]
	for _, f := range []struct{ field, why string }{
		{"network", "the sidecars find each other by names that the job gives its pods"},
		{"successPolicy", "the job has succeeded if all ranks have"},
		{"startupPolicy", "ranks start when the pods of all are there"},
	} {
		if set[f.field] != nil {
			t.c.note("dropped: %s of the runtime: %s", f.field, f.why)
		}
	}
	for _, v := range list(set, "replicatedJobs") {
		r, _ := v.(map[string]any)
		name := fmt.Sprint(r["name"])
		switch name {
		case launcherJob:
			t.launcher = r
		case nodeJob:
			t.node = r
		default:
			wrong = append(wrong, fmt.Errorf("%s.replicatedJobs has %s, which cannot be converted: an MPIJob has only the pods of %s and %s; run it as a job of its own before, and remove it", path, name, launcherJob, nodeJob))
			continue
		}
		wrong = append(wrong, t.replicated(path+".replicatedJobs["+name+"]", r))
	}
	if t.launcher == nil {
		wrong = append(wrong, fmt.Errorf("%s.replicatedJobs has no %s, which runs mpirun: add it", path, launcherJob))
	}
	return errors.Join(wrong...)
}

// replicated checks that a replicatedJob has only fields that an MPIJob can have.
func (t *training) replicated(path string, r map[string]any) error {
	job := tree(r, "template", "spec")
	wrong := []error{
		unknown(path, r, "name", "replicas", "groupName", "dependsOn", "template"),
		unknown(path+".template", tree(r, "template"), "metadata", "spec"),
		unknown(path+".template.spec", job, "template", "parallelism", "completions", "completionMode", "backoffLimit", "activeDeadlineSeconds"),
		formed[int64](path, r, "replicas"), formed[int64](path+".template.spec", job, "parallelism", "backoffLimit"),
		unknown(path+".template.spec.template", tree(job, "template"), "metadata", "spec"),
	}
	if n := whole(r["replicas"], 1); n != 1 {
		wrong = append(wrong, fmt.Errorf("%s.replicas is %d, want 1: numNodes is the number of pods", path, n))
	}
	for field := range tree(r, "template", "metadata", "labels") {
		if !strings.HasPrefix(field, trainerGroup+"/") {
			t.c.note("dropped: label %s of %s, which only its Job has: add it to the template if pods need it", field, path)
		}
	}
	if limit := job["backoffLimit"]; limit != nil && r["name"] == launcherJob && t.retries == nil {
		t.retries = limit
	} else if limit != nil {
		t.c.note("dropped: backoffLimit of %s: see runPolicy.restartLimit", path)
	}
	if job["activeDeadlineSeconds"] != nil {
		if r["name"] == launcherJob {
			t.deadline = job["activeDeadlineSeconds"]
		} else {
			t.c.note("dropped: activeDeadlineSeconds of %s: see runPolicy.activeDeadlineSeconds", path)
		}
	}
	return errors.Join(wrong...)
}

// mpiJob writes the job in the form of mpi-operator.
func (t *training) mpiJob() error {
	mpi, trainer := tree(t.policy, "mpi"), tree(t.spec, "trainer")
	launcher := tree(t.launcher, "template", "spec", "template")
	node := tree(t.node, "template", "spec", "template")
	t.c.main, t.c.launcherIs, t.c.workerIs = []string{nodeJob, launcherJob}, "replicatedJob "+launcherJob+" of "+t.is, t.is+": replicatedJob "+nodeJob
	t.over(launcher, "image", "command", "args", "env", "resources")
	t.over(node, "image", "env", "resources")

	asNode, _ := mpi["runLauncherAsNode"].(bool)
	nodes, err := t.nodes(asNode)
	if err != nil {
		return err
	}
	slots, err := t.slots(mpi, trainer, launcher, node)
	if err != nil {
		return err
	}
	policy := map[string]any{"managedBy": t.spec["managedBy"]}
	for field, v := range map[string]any{"backoffLimit": t.retries, "ttlSecondsAfterFinished": t.ttl, "activeDeadlineSeconds": t.deadline} {
		if v != nil {
			policy[field] = v
		}
	}
	if v := t.spec["activeDeadlineSeconds"]; v != nil {
		policy["activeDeadlineSeconds"] = v
	}
	if t.spec["suspend"] == true || t.suspend == true {
		policy["suspend"] = true
	}
	replicas := map[string]any{"Launcher": map[string]any{"template": launcher}}
	if t.node != nil {
		replicas["Worker"] = map[string]any{"replicas": nodes, "template": node}
	}
	old := t.c.old
	old["slotsPerWorker"], old["mpiImplementation"], old["runLauncherAsWorker"] = slots, mpi["mpiImplementation"], asNode
	old["runPolicy"], old["mpiReplicaSpecs"] = policy, replicas
	if path := mpi["sshAuthMountPath"]; path != nil {
		old["sshAuthMountPath"] = path
	}
	return nil
}

// over applies the job's trainer to the container of a pod that runs the program.
func (t *training) over(template map[string]any, fields ...string) {
	app, _ := t.c.runs(tree(template, "spec"))
	if app == nil {
		return
	}
	from := tree(t.spec, "trainer")
	for _, field := range fields {
		as := field
		if field == "resources" {
			as = "resourcesPerNode"
		}
		if from[as] == nil {
			continue
		}
		switch field {
		case "env":
			app[field] = merged(app[field], from[as], field, nil)
		case "resources":
			app[field] = merged(nil, from[as], field, nil)
		default:
			app[field] = from[as]
		}
	}
}

// nodes returns the number of pods of the replicatedJob of nodes. If the launcher is a
// node, Trainer keeps one more, even if the job requests one node.
func (t *training) nodes(launcherAsNode bool) (int64, error) {
	job := tree(t.node, "template", "spec")
	v := tree(t.spec, "trainer")["numNodes"]
	if v == nil && job["parallelism"] != nil && tree(t.node, "template", "metadata", "labels")[trainerGroup+"/trainjob-ancestor-step"] != "trainer" {
		return whole(job["parallelism"], 1), nil
	}
	if v == nil {
		v = t.policy["numNodes"]
	}
	n := whole(v, 1)
	switch {
	case n < 1:
		return 0, fmt.Errorf("numNodes is %v, want at least 1", v)
	case t.node == nil && n > 1:
		return 0, fmt.Errorf("numNodes is %d, and %s has no replicatedJob %s: add it, or set spec.trainer.numNodes to 1", n, t.is, nodeJob)
	case launcherAsNode && n == 1 && t.node != nil:
		t.c.note("numNodes is 1, and the runtime has a node in addition to its launcher, which is a node, too: the job has 2 pods, as with Trainer")
		return 1, nil
	case launcherAsNode:
		return n - 1, nil
	}
	return n, nil
}

// slots returns the ranks of a node: from the job, or else from the runtime. If the runtime
// has 1, it is the number of GPUs, as with Trainer.
func (t *training) slots(mpi, trainer, launcher, node map[string]any) (int64, error) {
	v := trainer["numProcPerNode"]
	if v == nil {
		v = mpi["numProcPerNode"]
	}
	n := whole(v, 0)
	if v != nil && n < 1 {
		return 0, fmt.Errorf("numProcPerNode is %v, want a number of ranks, at least 1", v)
	}
	if n = max(n, 1); n > 1 || trainer["numProcPerNode"] != nil {
		return n, nil
	}
	for _, template := range []map[string]any{node, launcher} {
		app, _ := t.c.runs(tree(template, "spec"))
		if gpus := gpus(tree(app, "resources", "limits")); gpus > 1 {
			t.c.note("ranksPerPod is %d, the number of GPUs of a node, since numProcPerNode is 1 in the runtime, as with Trainer", gpus)
			return gpus, nil
		}
	}
	return n, nil
}

func gpus(limits map[string]any) (n int64) {
	for name, v := range limits {
		if q, err := resource.ParseQuantity(fmt.Sprint(v)); err == nil && slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '.' || r == '-' }), "gpu") {
			n += q.Value()
		}
	}
	return n
}
