package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// deployed returns a pod as the ReplicaSet of a Deployment requests it: without a name, with
// the hash of its template, with restart policy Always, and with a number only if the template
// has one.
func deployed(number string) []byte {
	label := ""
	if number != "" {
		label = fmt.Sprintf(`, "%s": "%s"`, names.LabelPodNumber, number)
	}
	return []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "solver-` + number + `-6c9f8d7b5-", "namespace": "hpc",
  "labels": {"app": "solver", "pod-template-hash": "6c9f8d7b5", "` + names.LabelInject + `": "true", "` + names.LabelJob + `": "cg"` + label + `},
  "annotations": {"example.com/own": "kept"},
  "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "solver-6c9f8d7b5", "uid": "7", "controller": true, "blockOwnerDeletion": true}]},
 "spec": {"restartPolicy": "Always", "hostname": "lead", "subdomain": "own", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
  "securityContext": {}, "serviceAccountName": "default", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
  "containers": [{"name": "solver", "image": "solver:1", "command": ["/solver"], "restartPolicy": "Never", "imagePullPolicy": "IfNotPresent",
   "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {},
   "volumeMounts": [{"name": "kube-api-access-x2k4q", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
  "volumes": [{"name": "kube-api-access-x2k4q", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
  "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]}}`)
}

// TestPodsOfDeployments: pods of Deployments, whose names have no ordinal, join with the
// number in their template and keep their own names, labels and owner. A second pod with the
// same number (a second replica) and a pod without a number are refused with a remedy.
func TestPodsOfDeployments(t *testing.T) {
	c := newCluster()
	c.job.Namespace = "hpc"
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace}
	ask := func(number string) (*corev1.Pod, error) {
		t.Helper()
		p := new(corev1.Pod)
		if err := json.Unmarshal(deployed(number), p); err != nil {
			t.Fatal(err)
		}
		return p, h.join(t.Context(), "hpc", p)
	}
	for _, number := range []string{"2", "0", "3", "1"} { // in any order
		p, err := ask(number)
		if err != nil {
			t.Fatalf("number %s: %v", number, err)
		}
		was := new(corev1.Pod)
		if err := json.Unmarshal(deployed(number), was); err != nil {
			t.Fatal(err)
		}
		if p.Labels[batchv1.JobCompletionIndexAnnotation] != number {
			t.Errorf("number %s: labels %v", number, p.Labels)
		}
		kept := maps.Clone(p.Labels)
		maps.DeleteFunc(kept, func(k, _ string) bool { return was.Labels[k] == "" })
		if !maps.Equal(kept, was.Labels) || p.Annotations["example.com/own"] != "kept" || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].Name != "solver-6c9f8d7b5" ||
			p.GenerateName != was.GenerateName || p.Name != "" || p.Spec.Hostname != "lead" || p.Spec.Subdomain != "own" || p.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			t.Errorf("number %s: of its own it has %+v, host %s.%s, restarts %s", number, p.ObjectMeta, p.Spec.Hostname, p.Spec.Subdomain, p.Spec.RestartPolicy)
		}
		found := 0
		for _, i := range p.Spec.InitContainers {
			if i.Name == names.ContainerSidecar || i.Name == names.ContainerInstall {
				found++
			}
		}
		if found != 2 || len(p.Spec.Containers) != 1 || p.Spec.Containers[0].Image != "solver:1" {
			t.Errorf("number %s: %d containers of ours; the application is %+v", number, found, p.Spec.Containers)
		}
		p.Name = p.GenerateName + "x2k4q" // as the API server names it
		c.pods = append(c.pods, *p)
	}
	if _, err := ask("2"); err == nil || !strings.Contains(err.Error(), "has a pod of number 2 already: solver-2-6c9f8d7b5-x2k4q") {
		t.Errorf("a second replica: %v", err)
	}
	if _, err := ask(""); err == nil || !strings.Contains(err.Error(), "the pod has no number") || !strings.Contains(err.Error(), names.LabelPodNumber) {
		t.Errorf("no number: %v", err)
	}
	// A node has rejected a pod, and the ReplicaSet makes another one.
	c.pods[0].Status.Phase = corev1.PodFailed
	if _, err := ask("2"); err != nil {
		t.Errorf("in the place of one that was turned away: %v", err)
	}
}
