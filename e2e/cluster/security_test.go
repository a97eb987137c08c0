//go:build cluster

package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// A restricted namespace refuses pods that its level forbids, and our images run in it as a
// user without rights.
func TestRestrictedNamespace(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	for name, loosen := range map[string]func(*corev1.Pod){
		"privileged":   func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = new(true) },
		"root":         func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = new(false) },
		"capabilities": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Capabilities = nil },
		"host-network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	} {
		p := pod(name, "", probe("c", "pause"))
		loosen(p)
		if p.Spec.Containers[0].SecurityContext.Privileged != nil {
			p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		}
		_, err := lab.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: created with the answer %v, want a refusal by PodSecurity", name, err)
		}
	}
	create(t, namespace, pod("unprivileged", "", probe("c", "report")))
	await(t, namespace, "unprivileged", ended)
	if got := said(t, namespace, "unprivileged", "c"); !strings.Contains(got, "uid=65532 gid=65532\n") {
		t.Errorf("the probe reports\n%s\nwant uid and gid 65532", got)
	}
}
