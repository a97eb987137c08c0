//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// pod returns a pod of containers that the level "restricted" admits. It ends when
// its containers do.
func pod(name, node string, containers ...corev1.Container) *corev1.Pod {
	soon := int64(2)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			Containers:                    containers,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &soon,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
}

// probe returns a container that runs one probe.
func probe(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: lab.Image(harness.Probe), ImagePullPolicy: corev1.PullNever, Args: args,
		Env: []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
		}}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
		},
	}
}

// create creates a pod.
func create(t *testing.T, namespace string, p *corev1.Pod) {
	t.Helper()
	if _, err := lab.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatalf("pod %s: %v", p.Name, err)
	}
}

// await waits until wanted returns no error for a pod, and returns the pod.
func await(t *testing.T, namespace, name string, wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	err := harness.Poll(t.Context(), func() (err error) {
		if found, err = lab.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return wanted(found)
	})
	if err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
	return found
}

// running returns an error unless every container of a pod runs and is ready.
func running(p *corev1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("it is %s and not ready: %s", p.Status.Phase, p.Status.Message)
}

// ended returns an error unless a pod has succeeded.
func ended(p *corev1.Pod) error {
	if p.Status.Phase != corev1.PodSucceeded {
		return errors.New("its phase is " + string(p.Status.Phase))
	}
	return nil
}

// said returns what a container of a pod has written.
func said(t *testing.T, namespace, name, container string) string {
	t.Helper()
	text, err := lab.Client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{Container: container}).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("log of %s/%s: %v", name, container, err)
	}
	return string(text)
}
