//go:build cluster

package harness_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// An Environment has a real API server, which stores, validates and admits objects.
func TestEnvironment(t *testing.T) {
	env, err := harness.Env(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.CoreV1().Namespaces()
	name := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "story"}}
	if _, err := namespaces.Create(t.Context(), name, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Create(t.Context(), name, metav1.CreateOptions{}); err == nil {
		t.Error("the same namespace was created twice")
	}
}
