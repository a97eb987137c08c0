//go:build cluster

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// editor returns a user with Kubernetes' role edit in a namespace who may also debug and resize
// pods, as many clusters permit.
func editor(t *testing.T, ns string) string {
	t.Helper()
	user := "editor-of-" + ns
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "debug"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers", "pods/resize"}, Verbs: []string{"get", "patch", "update"},
	}}}
	if err := api.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{"ClusterRole": "edit", "Role": "debug"} {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if err := api.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	return user
}

// as runs kubectl as a user, and returns its output.
func as(t *testing.T, user, ns string, args ...string) (string, error) {
	t.Helper()
	out, err := lab.Kubectl(t.Context(), append([]string{"--as=" + user, "-n", ns}, args...)...).CombinedOutput()
	return string(out), err
}

// ephemeral returns a patch that adds a container to a running pod.
func ephemeral(p *corev1.Pod, name, more string) []string {
	return []string{"patch", "pod", p.Name, "--subresource=ephemeralcontainers", "--type=strategic", "-p", fmt.Sprintf(
		`{"spec":{"ephemeralContainers":[{"name":%q,"image":%q,"imagePullPolicy":"Never","args":["report"],`+
			`"securityContext":{"runAsUser":1000,"runAsNonRoot":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}%s}]}}`,
		name, lab.Image(harness.Probe), more)}
}

// debugged adds an administrator's ephemeral container to a pod's sidecar, which no other user
// can enter. The policy recognises it by its name, because the API server's request to enter a
// container has only the name.
func debugged(t *testing.T, ns, user string, p *corev1.Pod) {
	t.Helper()
	admin := func(args ...string) (string, error) {
		out, err := lab.Kubectl(t.Context(), append([]string{"-n", ns}, args...)...).CombinedOutput()
		return string(out), err
	}
	for what, more := range map[string]string{"its processes": `,"targetContainerName":"outrigger"`, "its token": `,"volumeMounts":[{"name":"outrigger-token","mountPath":"/t"}]`} {
		if out, err := admin(ephemeral(p, "look-inside", more)...); err == nil || !strings.Contains(out, "needs a name that begins with outrigger-debug") {
			t.Errorf("%s by a container of any name: %v: %s", what, err, out)
		}
	}
	if out, err := admin(ephemeral(p, "outrigger-debug-1", `,"targetContainerName":"outrigger"`)...); err != nil {
		t.Errorf("an administrator: %v: %s", err, out)
	}
	for _, args := range [][]string{{"exec", p.Name, "-c", "outrigger-debug-1", "--", "/usr/local/bin/probe", "report"}, {"attach", p.Name, "-c", "outrigger-debug-1"}} {
		if out, err := as(t, user, ns, args...); err == nil || !strings.Contains(out, "no programs are run") {
			t.Errorf("an editor, %s into the administrator's container: %v: %s", args[0], err, out)
		}
	}
	if out, err := admin("exec", p.Name, "-c", "outrigger-debug-1", "--", "/usr/local/bin/probe", "report"); err != nil && strings.Contains(out, "no programs are run") {
		t.Errorf("an administrator into the own container: %v: %s", err, out)
	}
}

// A user who may change pods of a namespace cannot enter the sidecar: not by an ephemeral
// container that mounts its token or sees its processes, not by another image, not by exec,
// and not after removing the pod's labels. The user may enter the application.
func TestEditorsStayOutOfTheSidecar(t *testing.T) {
	ns := restricted(t)
	j := submit(t, idle(ns, "fortress"))
	p := podOf(t, j, 0)
	user := editor(t, ns)
	if out, err := as(t, user, ns, "label", "pod", p.Name, names.LabelAttempt+"-"); err != nil {
		t.Fatalf("an editor may change labels: %v: %s", err, out)
	}
	for what, c := range map[string]struct {
		args []string
		want string
	}{
		"the token":          {ephemeral(p, "a", `,"volumeMounts":[{"name":"outrigger-token","mountPath":"/t"}]`), "may not see Outrigger's sidecar"},
		"the document":       {ephemeral(p, "b", `,"volumeMounts":[{"name":"outrigger-job","mountPath":"/t"}]`), "may not see Outrigger's sidecar"},
		"its processes":      {ephemeral(p, "c", `,"targetContainerName":"outrigger"`), "may not see Outrigger's sidecar"},
		"another image":      {[]string{"set", "image", "pod/" + p.Name, "outrigger=" + lab.Image(harness.Probe)}, "keep their image"},
		"a program in it":    {[]string{"exec", p.Name, "-c", "outrigger", "--", "/usr/local/bin/outrigger-sidecar", "--version"}, "no programs are run"},
		"its input":          {[]string{"attach", p.Name, "-c", "outrigger"}, "no programs are run"},
		"a volume by update": {[]string{"patch", "pod", p.Name, "--type=strategic", "-p", `{"spec":{"containers":[{"name":"app","volumeMounts":[{"name":"outrigger-token","mountPath":"/t"}]}]}}`}, "pod updates may not change fields"},
		"one process space":  {[]string{"patch", "pod", p.Name, "--type=merge", "-p", `{"spec":{"shareProcessNamespace":true}}`}, "pod updates may not change fields"},
	} {
		eventually(t, func() error { // the API server compiles a policy a moment after it is installed
			out, err := as(t, user, ns, c.args...)
			if err == nil || !strings.Contains(out, c.want) {
				return fmt.Errorf("%s (%s), want a refusal that says %q: %s", what, fmt.Sprint(err), c.want, out)
			}
			return nil
		})
	}
	// A resize changes CPU and memory only.
	out, err := as(t, user, ns, "patch", "pod", p.Name, "--subresource=resize", "--type=strategic", "-p",
		`{"spec":{"containers":[{"name":"app","image":"evil","volumeMounts":[{"name":"outrigger-token","mountPath":"/t"}]}]}}`)
	now := new(corev1.Pod)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), now); err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(now.Spec.Containers, p.Spec.Containers) {
		t.Errorf("a resize has changed the application to %+v (%v: %s)", now.Spec.Containers, err, out)
	}
	for what, args := range map[string][]string{
		"a look at the application":    ephemeral(p, "look", `,"targetContainerName":"app"`),
		"a program in the application": {"exec", p.Name, "-c", "app", "--", "/usr/local/bin/probe", "report"},
		"another label":                {"label", "pod", p.Name, "seen=yes"},
	} {
		if out, err := as(t, user, ns, args...); err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	debugged(t, ns, user, p)
	// Other users may still update that pod: its Job's controller must, so that it can end.
	if out, err := as(t, user, ns, "label", "pod", p.Name, "seen=again", "--overwrite"); err != nil {
		t.Errorf("another label of a pod that is debugged: %v: %s", err, out)
	}
	if err := api.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(p), now)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("the pod of a deleted job that was debugged is there still, its finalizers %v", now.Finalizers)
	})
}
