//go:build cluster

// Package chart tests the chart on a real API server: what Helm installs there,
// and that the operator can live on the rights that it is given.
package chart

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

const (
	chartDir  = "../../charts/outrigger"
	namespace = "outrigger-system"
	patience  = 2 * time.Minute
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	mpijobs     = schema.GroupVersionResource{Group: names.Group, Version: "v1alpha1", Resource: "mpijobs"}
)

// lab is an API server, and the programs.
type lab struct {
	t      *testing.T
	env    *harness.Environment
	client kubernetes.Interface
	any    dynamic.Interface
	bin    string
}

func open(t *testing.T) *lab {
	t.Helper()
	env, err := harness.Env(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{t: t, env: env, bin: t.TempDir()}
	if l.client, err = kubernetes.NewForConfig(env.Config); err != nil {
		t.Fatal(err)
	}
	if l.any, err = dynamic.NewForConfig(env.Config); err != nil {
		t.Fatal(err)
	}
	l.build("../../hack/helm", "helm.sh/helm/v4/cmd/helm")
	l.build("../..", "./operator/cmd/outrigger-operator")
	_, err = l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) build(dir, program string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "go", "build", "-o", l.bin+"/", program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("building %s: %v\n%s", program, err, out)
	}
}

// helm runs a helm command on the release.
func (l *lab) helm(args ...string) string {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.bin, "helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.env.Kubeconfig, "HELM_NAMESPACE="+namespace, "HOME="+l.t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// as returns a kubeconfig of a ServiceAccount of the release.
func (l *lab) as(account string) string {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(l.env.Kubeconfig)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + account
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:authenticated"}
	}
	path := filepath.Join(l.t.TempDir(), account)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// journal is what a program prints.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// operate runs the operator with only the rights of its ServiceAccount until the test ends.
func (l *lab) operate() *journal {
	l.t.Helper()
	out := new(journal)
	cmd := exec.CommandContext(context.WithoutCancel(l.t.Context()), filepath.Join(l.bin, "outrigger-operator"),
		"--sidecar-image=sidecar", "--leader-elect", "--leader-election-namespace="+namespace, "--metrics-bind-address=0", "--issuer-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.as("outrigger-operator"))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("operator: %v\n%s", err, out)
		}
	})
	return out
}

func (l *lab) wait(what string, out *journal, ready func() bool) {
	l.t.Helper()
	for end := time.Now().Add(patience); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("no %s\n%s", what, out)
		}
	}
}

// TestLifeOfARelease installs the chart, makes a job's objects with the operator's rights,
// upgrades and uninstalls. Definitions and jobs stay, and another installation finds them.
func TestLifeOfARelease(t *testing.T) {
	l := open(t)
	l.helm("install", "outrigger", chartDir, "--set", "monitoring.dashboard.enabled=true,devicePlugin.enabled=true")
	l.wait("definition", new(journal), func() bool {
		_, err := l.any.Resource(mpijobs).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	log := l.operate()
	trial := exec.CommandContext(t.Context(), filepath.Join(l.bin, "outrigger-operator"), "trial", "--namespace="+namespace, "--image=examples", "--timeout=1h")
	trial.Env = append(os.Environ(), "KUBECONFIG="+l.env.Kubeconfig)
	if err := trial.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trial.Wait() }() // it was killed
	defer func() { _ = trial.Process.Kill() }()
	var jobs *batchv1.JobList
	l.wait("Job", log, func() bool {
		var err error
		jobs, err = l.client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: names.LabelJob})
		return err == nil && len(jobs.Items) == 1
	})
	if s := log.String(); strings.Contains(s, "forbidden") {
		t.Errorf("the operator lacks a right:\n%s", s)
	}
	l.wait("state", log, func() bool {
		list, err := l.any.Resource(mpijobs).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Object["status"] != nil
	})

	l.helm("upgrade", "outrigger", chartDir, "--set", "operator.replicas=3,devicePlugin.enabled=false")
	d, err := l.client.AppsV1().Deployments(namespace).Get(t.Context(), "outrigger-operator", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 3 {
		t.Errorf("after the upgrade: %v, %v", d.Spec.Replicas, err)
	}
	if sets, err := l.client.AppsV1().DaemonSets(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(sets.Items) != 0 {
		t.Errorf("the agent was turned off: %v, %v", sets, err)
	}

	l.helm("uninstall", "outrigger")
	if _, err := l.client.AppsV1().Deployments(namespace).Get(t.Context(), "outrigger-operator", metav1.GetOptions{}); err == nil {
		t.Error("the operator is still there")
	}
	// Otherwise the next installation's operator would wait for its end.
	if _, err := l.client.CoordinationV1().Leases(namespace).Get(t.Context(), "outrigger-operator."+names.Group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the lease of the operator that is gone: %v", err)
	}
	for _, name := range []string{"mpijobs", "fabricprofiles"} {
		if _, err := l.any.Resource(definitions).Get(t.Context(), name+"."+names.Group, metav1.GetOptions{}); err != nil {
			t.Errorf("definition %s: %v", name, err)
		}
	}
	if list, err := l.any.Resource(mpijobs).Namespace(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("the job has gone with the chart: %v", err)
	}
	l.helm("install", "outrigger", chartDir)
}
