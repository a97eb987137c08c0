package manifest

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// envIndex is the variable with which the Job controller tells a container its pod's
// number.
const envIndex = "JOB_COMPLETION_INDEX"

// env returns the variables of a pod's ranks, in the order in which a container gets them:
// the value of a variable may refer to those before it.
func (p *Plan) env(attempt, pod int) []string {
	env := []string{names.EnvPod + "=" + strconv.Itoa(pod)}
	list := application(&p.Job.Spec).Env
	for _, v := range list {
		value, ok := expand(v.Value, lookupIn(env)), true
		if v.ValueFrom != nil {
			value, ok = p.field(v.ValueFrom, attempt, pod)
		}
		if ok {
			env = append(env, v.Name+"="+value)
		}
	}
	unless := func(name, value string) {
		if value != "" && !slices.ContainsFunc(list, func(v corev1.EnvVar) bool { return v.Name == name }) {
			env = append(env, name+"="+value)
		}
	}
	unless(names.EnvWait, jobdoc.Wait(&p.Profile))
	unless(names.EnvMPIArena, jobdoc.Allocations(&p.Job.Spec.Memory))
	unless(names.EnvMPIProgress, jobdoc.Progress(p.Job.Spec.MPIProgress))
	unless(envIndex, strconv.Itoa(pod))
	return env
}

// lookupIn returns a function that finds the latest value of a variable.
func lookupIn(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, e := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// address is the address of every pod on this machine.
const address = "127.0.0.1"

// field returns the value of a pod's field for a variable, if it has a meaning on this
// machine.
func (p *Plan) field(from *corev1.EnvVarSource, attempt, pod int) (string, bool) {
	if !known(from) {
		return "", false
	}
	path := from.FieldRef.FieldPath
	if key, ok := keyOf(path, "metadata.labels"); ok {
		return p.labels(attempt, pod)[key], true
	}
	if key, ok := keyOf(path, "metadata.annotations"); ok {
		if key == batchv1.JobCompletionIndexAnnotation {
			return strconv.Itoa(pod), true
		}
		return p.Job.Spec.Template.Annotations[key], true
	}
	switch path {
	case "metadata.name":
		return p.Attempt(attempt).PodName(int32(pod)), true
	case "metadata.namespace":
		return p.Job.Namespace, true
	case "spec.nodeName":
		return p.machine.Node, true
	}
	return address, true
}

// labels returns the labels of a pod, as the operator and the Job controller set them.
func (p *Plan) labels(attempt, pod int) map[string]string {
	all := map[string]string{}
	for k, v := range p.Job.Spec.Template.Labels {
		all[k] = v
	}
	all[names.LabelJob], all[names.LabelAttempt] = p.Job.Name, strconv.Itoa(attempt)
	all[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(pod)
	return all
}

// known reports whether a variable's source has a meaning on one machine.
func known(from *corev1.EnvVarSource) bool {
	if from.FieldRef == nil {
		return false
	}
	path := from.FieldRef.FieldPath
	if slices.Contains([]string{"metadata.name", "metadata.namespace", "spec.nodeName", "status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"}, path) {
		return true
	}
	_, label := keyOf(path, "metadata.labels")
	_, annotation := keyOf(path, "metadata.annotations")
	return label || annotation
}

// keyOf parses a field path such as metadata.labels['app'].
func keyOf(path, of string) (string, bool) {
	rest, ok := strings.CutPrefix(path, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}
