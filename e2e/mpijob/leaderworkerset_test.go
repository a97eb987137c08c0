//go:build cluster && controllers

package mpijob

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

func errorf(err error, out []byte) error { return fmt.Errorf("%w: %s", err, out) }

// podsOfOthers returns the fields of a pod template whose pods join a job, and start when the
// name that their controller has set resolves.
func podsOfOthers(t *testing.T, j *v1alpha1.MPIJob, restart, name string) string {
	t.Helper()
	spec := j.Spec.Template.Spec.DeepCopy()
	resolves(spec, name)
	spec.RestartPolicy = corev1.RestartPolicy(restart)
	if restart != "Never" {
		spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	}
	raw, err := yaml.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{"app": j.Name, names.LabelInject: "true", names.LabelJob: j.Name}},
		"spec":     spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func indented(text string, by int) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", by))
}

// The pods of two groups of a real LeaderWorkerSet are the four pods of a job, with the leader
// first in each group. The leader's name resolves in each pod, and the job completes.
func TestLeaderWorkerSet(t *testing.T) {
	controllerOf(t, "lws")
	ns := restricted(t)
	j := example(ns, "groups", "ring", "-rounds", "50", "-pause", "10ms")
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.PodManagement = 8, 2, v1alpha1.PodsExternal
	submit(t, j)
	template := podsOfOthers(t, j, "Always", "$(LWS_LEADER_ADDRESS)")
	apply(t, ns, fmt.Sprintf(`
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: set}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    restartPolicy: None
    workerTemplate:
      %s
`, indented(template, 6)))
	places := map[string]string{}
	eventually(t, func() error {
		pods := new(corev1.PodList)
		if err := api.List(t.Context(), pods, client.InNamespace(ns), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
			return err
		}
		for _, p := range pods.Items {
			if _, known := places[p.Name]; !known {
				places[p.Name] = p.Labels["batch.kubernetes.io/job-completion-index"]
				if p.Spec.Hostname != p.Name || p.Spec.Subdomain != "set" {
					t.Errorf("pod %s has the names %s.%s, which LWS_LEADER_ADDRESS does not have", p.Name, p.Spec.Hostname, p.Spec.Subdomain)
				}
			}
		}
		if len(places) < 4 {
			return errors.New(kubectl(t, "get", "pods,statefulsets,leaderworkersets,events", "-n", ns))
		}
		return nil
	})
	for pod, number := range map[string]string{"set-0": "0", "set-0-1": "1", "set-1": "2", "set-1-1": "3"} {
		if places[pod] != number {
			t.Errorf("the pods have the numbers %v, want %s for %s", places, number, pod)
		}
	}
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 8 || strings.Join(s.Transports, "") != "tcp" {
		t.Errorf("status %+v", s)
	}
}

// The Jobs of a real JobSet, of two kinds and one of them repeated, are one job; the name of its
// first pod resolves in each of them.
func TestJobSet(t *testing.T) {
	controllerOf(t, "jobset")
	ns := restricted(t)
	j := example(ns, "set", "ring", "-rounds", "50", "-pause", "10ms")
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.PodManagement = 8, 2, v1alpha1.PodsExternal
	submit(t, j)
	template := indented(podsOfOthers(t, j, "Never", "theirs-driver-0-0.theirs"), 10)
	const replicated = `
  - name: %s
    replicas: %d
    template:
      spec:
        completions: 1
        parallelism: 1
        backoffLimit: 0
        completionMode: Indexed
        template:
          %s`
	apply(t, ns, `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: theirs}
spec:
  replicatedJobs:`+fmt.Sprintf(replicated, "driver", 1, template)+fmt.Sprintf(replicated, "workers", 3, template))
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 8 {
		t.Errorf("status %+v", s)
	}
	eventually(t, func() error {
		if text := kubectl(t, "get", "jobset", "theirs", "-n", ns, "-o", "jsonpath={.status.terminalState}"); text != "Completed" {
			return fmt.Errorf("the JobSet is %q", text)
		}
		return nil
	})
}
