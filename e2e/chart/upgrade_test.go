//go:build cluster

package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// older has the objects that the first chart left on a cluster; its README says how they were
// made.
const older = "testdata/older"

var kinds = map[string]schema.GroupVersionResource{
	"MPIJob":    mpijobs,
	"Job":       {Group: "batch", Version: "v1", Resource: "jobs"},
	"ConfigMap": {Version: "v1", Resource: "configmaps"},
	"Secret":    {Version: "v1", Resource: "secrets"},
	"Service":   {Version: "v1", Resource: "services"},
}

// TestUpgradeFromAnOlderChart checks the upgrade of docs/install.md from the first chart, with
// jobs that its operator has made. Today's operator has all rights that it needs. A running
// job completes with the objects that it has; a job that fails is started again with today's
// objects; a job that was just submitted starts. The values that were set are kept.
func TestUpgradeFromAnOlderChart(t *testing.T) {
	l := open(t)
	l.helm("install", "outrigger", older+"/chart", "--set", "operator.replicas=3,devicePlugin.enabled=false")
	l.wait("definition", new(journal), func() bool {
		_, err := l.any.Resource(mpijobs).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	if _, err := l.client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	good, bad := l.running("good"), l.running("bad")
	l.left("MPIJob", "waits", nil)

	l.refusesOldDefaults()
	l.helm(upgrade(t)...)
	d, err := l.client.AppsV1().Deployments(namespace).Get(t.Context(), "outrigger-operator", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 {
		t.Errorf("after the upgrade: %v, %v", d.Spec.Replicas, err)
	} else if args := d.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--issuer-check-address=false") {
		t.Errorf("the upgrade has turned a check off: %q", args)
	}
	log := l.operate()
	job := func(name string) *batchv1.Job {
		var found *batchv1.Job
		l.wait("Job "+name, log, func() bool {
			var err error
			found, err = l.client.BatchV1().Jobs("default").Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		})
		return found
	}
	if b := job("waits-0"); b.UID == "" || !strings.Contains(fmt.Sprint(b.Spec.Template.Spec.Volumes), "ServiceAccountToken") {
		t.Errorf("a job that had not begun is made as it was: %+v", b.Spec.Template.Spec.Volumes)
	}
	was := job("good-0")
	l.end(good, 0)
	l.finish(was)
	l.becomes("good", "Complete", log)
	l.end(bad, 3)
	l.becomes("bad", "Restarting", log)
	for i := range bad { // nothing else deletes pods here
		if err := l.client.CoreV1().Pods("default").Delete(t.Context(), bad[i].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	}
	if b := job("bad-1"); !strings.Contains(fmt.Sprint(b.Spec.Template.Spec.Volumes), "ServiceAccountToken") {
		t.Errorf("the restart has %+v", b.Spec.Template.Spec.Volumes)
	}
	if now := job("good-0"); now.UID != was.UID {
		t.Error("the Job that ran was made anew")
	}
	if s := log.String(); strings.Contains(s, "forbidden") {
		t.Errorf("the operator lacks a right:\n%s", s)
	}
}

// upgrade returns the command of docs/install.md, on this tree's chart.
func upgrade(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if args, ok := strings.CutPrefix(line, "helm upgrade outrigger charts/outrigger --namespace outrigger-system "); ok {
			args = strings.ReplaceAll(strings.TrimSpace(args), "$(cat bin/images/version)", "new")
			return append([]string{"upgrade", "outrigger", chartDir}, strings.Fields(args)...)
		}
	}
	t.Fatal("docs/install.md has no helm upgrade")
	return nil
}

// refusesOldDefaults checks that an upgrade with --reuse-values is refused: it keeps the old
// chart's defaults, in which new features are off.
func (l *lab) refusesOldDefaults() {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.bin, "helm"), "upgrade", "outrigger", chartDir, "--reuse-values")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.env.Kubeconfig, "HELM_NAMESPACE="+namespace, "HOME="+l.t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("missing properties")) {
		l.t.Errorf("helm upgrade --reuse-values: %v\n%s", err, out)
	}
}

// left creates one of the objects of an older operator, for a job of another name. owner is
// its MPIJob.
func (l *lab) left(kind, job string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	l.t.Helper()
	text, err := os.ReadFile(older + "/objects.yaml")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, one := range strings.Split(string(text), "\n---\n") {
		one = renamed(one, job)
		if owner != nil {
			one = strings.ReplaceAll(one, "MPIJOB", string(owner.GetUID()))
		}
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(one), &u.Object); err != nil {
			l.t.Fatal(err)
		}
		if u.GetKind() != kind {
			continue
		}
		status := u.Object["status"]
		to := l.any.Resource(kinds[kind]).Namespace("default")
		made, err := to.Create(l.t.Context(), u, metav1.CreateOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		if owner == nil && job != "waits" {
			made.Object["status"] = status
			if made, err = to.UpdateStatus(l.t.Context(), made, metav1.UpdateOptions{}); err != nil {
				l.t.Fatal(err)
			}
		}
		return made
	}
	l.t.Fatalf("%s has no %s", older, kind)
	return nil
}

// renamed gives the objects of the job "cg" another job's name.
func renamed(text, job string) string {
	for _, key := range []string{"name", "job-name", "part-of", "jobName", "secretName", "subdomain"} {
		text = strings.ReplaceAll(text, key+": cg\n", key+": "+job+"\n")
		text = strings.ReplaceAll(text, key+": cg-0\n", key+": "+job+"-0\n")
	}
	return text
}

// running returns a job of the older operator whose pods run.
func (l *lab) running(name string) []*corev1.Pod {
	l.t.Helper()
	owner := l.left("MPIJob", name, nil)
	for _, kind := range []string{"Service", "Secret", "ConfigMap", "Job"} {
		l.left(kind, name, owner)
	}
	b, err := l.client.BatchV1().Jobs("default").Get(l.t.Context(), name+"-0", metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	b.Status.StartTime = new(metav1.Now())
	if b, err = l.client.BatchV1().Jobs("default").UpdateStatus(l.t.Context(), b, metav1.UpdateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range *b.Spec.Completions {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", b.Name, i), Labels: maps.Clone(b.Spec.Template.Labels)}, Spec: *b.Spec.Template.Spec.DeepCopy()}
		p.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(i)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b, batchv1.SchemeGroupVersion.WithKind("Job"))}
		p.Spec.NodeName = fmt.Sprintf("node%d", i+1)
		if p, err = l.client.CoreV1().Pods("default").Create(l.t.Context(), p, metav1.CreateOptions{}); err != nil {
			l.t.Fatal(err)
		}
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		pods = append(pods, l.set(p, corev1.PodRunning, state))
	}
	return pods
}

// end ends the applications of pods.
func (l *lab) end(pods []*corev1.Pod, code int32) {
	l.t.Helper()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	for i, p := range pods {
		pods[i] = l.set(p, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}})
	}
}

// set gives a pod its phase, and its containers their state.
func (l *lab) set(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) *corev1.Pod {
	l.t.Helper()
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: state}}
	if sidecar := state; state.Terminated != nil {
		sidecar.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "outrigger", State: sidecar}}
	} else {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "outrigger", Ready: true, State: state}}
	}
	p, err := l.client.CoreV1().Pods("default").UpdateStatus(l.t.Context(), p, metav1.UpdateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// finish completes a Job, as its controller would.
func (l *lab) finish(b *batchv1.Job) {
	l.t.Helper()
	now := metav1.Now()
	for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		b.Status.Conditions = append(b.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	b.Status.Active, b.Status.Ready, b.Status.Terminating = 0, new(int32), new(int32)
	b.Status.Succeeded, b.Status.CompletedIndexes, b.Status.CompletionTime = 2, "0-1", &now
	l.wait("end of Job "+b.Name, new(journal), func() bool {
		status := b.Status
		var err error
		if b, err = l.client.BatchV1().Jobs(b.Namespace).Get(l.t.Context(), b.Name, metav1.GetOptions{}); err != nil {
			l.t.Fatal(err)
		}
		status.StartTime = b.Status.StartTime
		b.Status = status
		_, err = l.client.BatchV1().Jobs(b.Namespace).UpdateStatus(l.t.Context(), b, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			l.t.Fatal(err)
		}
		return err == nil
	})
}

// becomes waits until a job's condition is True.
func (l *lab) becomes(job, condition string, log *journal) {
	l.t.Helper()
	l.wait(job+" "+condition, log, func() bool {
		u, err := l.any.Resource(mpijobs).Namespace("default").Get(l.t.Context(), job, metav1.GetOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return slices.ContainsFunc(list, func(c any) bool {
			m, _ := c.(map[string]any)
			return m["type"] == condition && m["status"] == "True"
		})
	})
}
