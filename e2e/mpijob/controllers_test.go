//go:build cluster && controllers

package mpijob

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// controllerOf installs another project's controller by its own chart, with its webhooks and
// rights. There is no image registry: its program is mounted from this machine, whose files
// the nodes can read.
func controllerOf(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("OUTRIGGER_CONTROLLERS")
	chart, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
	if err != nil {
		t.Fatalf("%v: OUTRIGGER_CONTROLLERS is what hack/controllers/build prints", err)
	}
	ns := name + "-system"
	if out, err := lab.Kubectl(t.Context(), "create", "namespace", ns).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("AlreadyExists")) {
		t.Fatalf("%v: %s", err, out)
	}
	var deployment string
	objects := map[string][]string{} // by the namespace that has to be said
	for _, text := range strings.Split(string(chart), "\n---") {
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "", "APIService": // an API that is not served would keep namespaces from ending
			continue
		case "Deployment":
			if strings.Contains(u.GetName(), "plugins-controller") {
				continue // it counts the pods of groups; the scheduler does without
			}
			deployment = u.GetName()
			ours(t, u, filepath.Join(dir, name))
		}
		raw, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		say := ns
		if u.GetNamespace() != "" {
			say = "" // kubectl takes no second one
		}
		objects[say] = append(objects[say], string(raw))
	}
	for say, all := range objects {
		apply(t, say, strings.Join(all, "\n---\n"))
	}
	kubectl(t, "rollout", "status", "-n", ns, "deployment/"+deployment, "--timeout=150s")
}

// ours changes a Deployment so that its pod runs a program of this machine.
func ours(t *testing.T, u *unstructured.Unstructured, dir string) {
	t.Helper()
	spec, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	containers := spec["containers"].([]any)
	c := containers[0].(map[string]any)
	c["image"], c["imagePullPolicy"] = lab.Image(harness.Probe), "Never"
	c["command"] = []any{"/program/manager"}
	delete(c, "resources")
	mounts, _ := c["volumeMounts"].([]any)
	c["volumeMounts"] = append(mounts, map[string]any{"name": "program", "mountPath": "/program", "readOnly": true})
	volumes, _ := spec["volumes"].([]any)
	spec["volumes"] = append(volumes, map[string]any{"name": "program", "hostPath": map[string]any{"path": dir}})
	if err := unstructured.SetNestedMap(u.Object, spec, "spec", "template", "spec"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, int64(1), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
}

// apply applies objects, and tries again, because webhooks that have just been installed may
// not be in effect yet.
func apply(t *testing.T, ns, objects string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		args := []string{"apply", "--server-side", "--force-conflicts", "-f", file}
		if ns != "" {
			args = append(args, "-n", ns)
		}
		out, err := lab.Kubectl(t.Context(), args...).CombinedOutput()
		if err != nil {
			time.Sleep(time.Second)
			return errorf(err, out)
		}
		return nil
	})
}
