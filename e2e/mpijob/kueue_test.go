//go:build cluster && controllers

package mpijob

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// The queue of TestKueue, which admits nothing until the test resumes it.
const queue = `
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: hpc}
spec:
  namespaceSelector: {}
  stopPolicy: Hold
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: any
      resources:
      - {name: cpu, nominalQuota: "4"}
      - {name: memory, nominalQuota: 4Gi}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: lab}
spec: {clusterQueue: hpc}
`

// A real Kueue holds a job, which has no pod meanwhile, then admits the whole job, and admits
// each restart again. It gets the job's priority class and time limit.
func TestKueue(t *testing.T) {
	controllerOf(t, "kueue")
	ns := restricted(t)
	apply(t, ns, queue)
	j := long(ns, "queued", "-fail-rank", "1", "-fail-round", "50")
	j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "lab", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "300"}
	j.Spec.RunPolicy.RestartLimit = new(int32(1))
	submit(t, j)
	becomes(t, j, v1alpha1.ConditionSuspended)
	if err := saying(t, j, v1alpha1.ConditionSuspended, "Queued", "queued-0"); err != nil {
		t.Error(err)
	}
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(ns), client.MatchingLabels{names.LabelJob: j.Name}); err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods of a job that is held, %v", len(pods.Items), err)
	}
	release := func(policy string) {
		kubectl(t, "patch", "clusterqueue", "hpc", "--type=merge", "-p", `{"spec":{"stopPolicy":"`+policy+`"}}`)
	}
	release("None")
	podOf(t, j, 0)
	release("Hold") // what is admitted goes on, and the next attempt waits
	eventually(t, func() error { return saying(t, j, v1alpha1.ConditionSuspended, "Queued", "queued-1") })
	eventually(t, func() error {
		said := kubectl(t, "get", "workloads", "-n", ns, "-o", `jsonpath={range .items[*]}{.metadata.ownerReferences[0].name} {.spec.priority} {.spec.maximumExecutionTimeSeconds};{end}`)
		if !strings.Contains(said, "queued-1 100 300;") {
			return fmt.Errorf("Kueue has the workloads %q", said)
		}
		return nil
	})
	release("None")
	if s := becomes(t, j, v1alpha1.ConditionFailed).Status; deref(s.Restarts) != 1 || s.FirstFailure.Reason != "RankExited" || deref(s.FirstFailure.Rank) != 1 {
		t.Errorf("status %+v, %+v", s, s.FirstFailure)
	}
}

// TestKueuePreempts: a job of low priority writes its checkpoint when Kueue preempts it for a
// job of high priority, waits for the end of that job, and continues from the checkpoint. It
// uses no restart.
func TestKueuePreempts(t *testing.T) {
	controllerOf(t, "kueue")
	j, file := saving(t, "preempted")
	// Its quota is enough for the sidecars of one of the two jobs.
	one := strings.NewReplacer("stopPolicy: Hold", "stopPolicy: None\n  preemption: {withinClusterQueue: LowerPriority}", `nominalQuota: "4"`, "nominalQuota: 700m").Replace(queue)
	apply(t, j.Namespace, one)
	j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "lab"}
	begun(t, submit(t, j))
	urgent := example(j.Namespace, "urgent", "ring", "-rounds", "20")
	urgent.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "lab", "kueue.x-k8s.io/priority-class": "urgent"}
	submit(t, urgent)
	becomes(t, j, v1alpha1.ConditionSuspended)
	becomes(t, urgent, v1alpha1.ConditionComplete)
	if _, err := os.Stat(file); err != nil {
		t.Error("the pods have ended without a checkpoint:", err)
	}
	wentOn(t, j, 0)
}
