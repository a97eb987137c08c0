package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Levels of the Pod Security Standards that a namespace can be held to.
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// Namespace makes a namespace for one test, held to a level of the Pod Security
// Standards, and removes it when the test ends. Of a failed test it first logs
// what happened in it.
func (c *Cluster) Namespace(t testing.TB, level string) string {
	t.Helper()
	made, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's own has ended
		if t.Failed() {
			c.tell(ctx, t, made.Name)
		}
		if err := c.Client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("namespace %s: %v", made.Name, err)
		}
	})
	// Pods are refused as long as the namespace's ServiceAccount is missing.
	err = Poll(t.Context(), func() error {
		_, err := c.Client.CoreV1().ServiceAccounts(made.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("namespace %s: ServiceAccount default: %v", made.Name, err)
	}
	return made.Name
}

// tell logs the objects and events that explain most failures.
func (c *Cluster) tell(ctx context.Context, t testing.TB, namespace string) {
	for _, question := range []string{"get all -o wide", "get events --sort-by=.lastTimestamp", "describe pods"} {
		c.log(ctx, t, namespace, strings.Fields(question)...)
	}
	pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("pods of %s: %v", namespace, err)
		return
	}
	for _, p := range pods.Items {
		c.log(ctx, t, namespace, "logs", "--all-containers", "--prefix", "--tail=50", p.Name)
	}
	t.Logf("logs of the control plane: %s; of the nodes: %s", c.Logs(), c.Nodes()[0].Path("log")+" ...")
}

func (c *Cluster) log(ctx context.Context, t testing.TB, namespace string, args ...string) {
	said, err := c.Kubectl(ctx, append([]string{"--namespace=" + namespace}, args...)...).CombinedOutput()
	if err != nil {
		said = fmt.Append(said, err)
	}
	t.Logf("kubectl %s\n%s", strings.Join(args, " "), said)
}
