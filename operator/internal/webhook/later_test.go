package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// ofLater returns a pod of a later version of Kubernetes. mark is inserted where such a pod
// has fields that earlier versions do not know.
func ofLater(mark string) string {
	return strings.ReplaceAll(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"outrigger.dev/job-name": "cg", "outrigger.dev/inject": "true", "outrigger.dev/pod-number": "1"}},
"spec": {MARK "restartPolicy": "Never", "hostNetwork": false, "securityContext": {MARK "fsGroup": 7},
"containers": [
  {MARK "name": "log", "image": "x", "env": [{MARK "name": "A", "value": "1"}, {MARK "name": "A", "value": "2"}]},
  {MARK "name": "solver", "image": "x", "command": ["/solver"], "securityContext": {MARK "runAsUser": 7}, "env": [{MARK "name": "A", "value": "1"}, {"name": "A", "value": "1"}],
   "ports": [{MARK "containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}], "volumeMounts": [{MARK "name": "v", "mountPath": "/v"}]}],
"initContainers": [{MARK "name": "first", "image": "x"}, {"name": "second", "image": "x"}],
"tolerations": [{"operator": "Exists"}, {MARK "key": "x"}],
"volumes": [{MARK "name": "v"}, {"name": "w", "projected": {"sources": [{MARK "secret": {"name": "s"}}]}}]}}`, "MARK", mark)
}

// mutated returns a pod after the webhook's answer.
func mutated(t *testing.T, raw []byte) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := newCluster()
	c.job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver"}}
	h := &Pods{Client: c, Live: c, Options: desired.Options{Image: "sidecar"}, OfPlace: ofPlace, Decoder: admission.NewDecoder(scheme)}
	answer := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "hpc", Object: runtime.RawExtension{Raw: raw}}})
	if !answer.Allowed {
		t.Fatal(answer.Result.Message)
	}
	text, err := json.Marshal(answer.Patches)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return out
}

// TestFieldsOfLaterVersions: a field that this program does not know stays in the pod, at
// every depth and next to every change. The sidecar has no such field, even in a copy that the
// pod contains.
func TestFieldsOfLaterVersions(t *testing.T) {
	tree := func(raw []byte) (v any) {
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	const mark = `"later": {"on": [1, {"x": 2}]},`
	without := mutated(t, []byte(ofLater("")))
	with := mutated(t, []byte(ofLater(mark)))
	if got, want := strings.Count(string(with), `"later"`), strings.Count(ofLater(mark), `"later"`); got != want {
		t.Errorf("%d fields of %d are left:\n%s", got, want, with)
	}
	var known [2]corev1.Pod
	for i, raw := range [][]byte{without, with} {
		if err := json.Unmarshal(raw, &known[i]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(known[0], known[1]); diff != "" {
		t.Errorf("fields that are known (-without +with those that are not):\n%s", diff)
	}
	if diff := cmp.Diff(tree(with), tree(mutated(t, with))); diff != "" {
		t.Errorf("asked again (-once +twice):\n%s", diff)
	}
	for _, name := range []string{names.ContainerSidecar, names.ContainerInstall, names.VolumeToken} {
		named := fmt.Sprintf("%q:%q", "name", name)
		bad := strings.Replace(string(without), named+",", named+`,"later":1,`, 1)
		if name == names.VolumeToken { // the name is the first field of a mount
			bad = strings.ReplaceAll(string(without), named, named+`,"later":1`)
		}
		if bad == string(without) {
			t.Fatalf("%s is not in\n%s", named, bad)
		}
		if diff := cmp.Diff(tree(without), tree(mutated(t, []byte(bad)))); diff != "" {
			t.Errorf("a copy of %s with a field more (-want +got):\n%s", name, diff)
		}
		if !inject.Reserved(name) {
			t.Errorf("%s is not reserved", name)
		}
	}
}
