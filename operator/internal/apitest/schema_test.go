//go:build cluster

package apitest

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

const goodJob = `
metadata: {name: good}
spec:
  ranks: 4
  ranksPerPod: 2
  template:
    spec:
      containers:
      - name: solver
        image: example/solver
        command: [/solver, -n, "100"]
`

// TestDefaults: what is not said is said by the schema.
func TestDefaults(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, goodJob)
	u.SetNamespace(ns)
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	j := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(u), j); err != nil {
		t.Fatal(err)
	}
	s := &j.Spec
	if s.LaunchMode != v1alpha1.LaunchProcesses || s.Transport.Type != v1alpha1.TransportAuto || s.Transport.Policy != v1alpha1.TransportPreferred {
		t.Errorf("launch mode %q, transport %+v", s.LaunchMode, s.Transport)
	}
}

// TestPodMetadataIsKept: the labels and annotations of the job's pods are fields
// of the schema, and not cut off.
func TestPodMetadataIsKept(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, strings.Replace(goodJob, "template:", "template:\n    metadata: {labels: {team: a}, annotations: {note: b}}", 1))
	u.SetNamespace(ns)
	if err := api.Create(t.Context(), u, client.FieldValidation("Strict")); err != nil {
		t.Fatal(err)
	}
	j := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(u), j); err != nil {
		t.Fatal(err)
	}
	if m := j.Spec.Template.ObjectMeta; m.Labels["team"] != "a" || m.Annotations["note"] != "b" {
		t.Errorf("metadata of the pods: %+v", m)
	}
}

// TestRefusedJobs: everything that can be wrong in an MPIJob is refused, with
// words that say what to do.
func TestRefusedJobs(t *testing.T) {
	ns := namespace(t)
	for _, c := range []struct{ from, to, want string }{
		{"name: good", "name: " + strings.Repeat("a", 41), "at most 40 characters"},
		{"name: good", "name: a.b", "no dots"},
		{"ranks: 4", "ranks: 0", "spec.ranks"},
		{"ranks: 4", "ranks: -1", "spec.ranks"},
		{"  ranks: 4\n", "", "spec.ranks"},
		{"ranks: 4", "ranks: 2000000", "spec.ranks"},
		{"ranksPerPod: 2", "ranksPerPod: 5000", "spec.ranksPerPod"},
		{"ranks: 4\n  ranksPerPod: 2", "ranks: 1025\n  ranksPerPod: 2", "over 512 pods: raise ranksPerPod"},
		{"  template:", "  launchMode: Magic\n  template:", "launchMode"},
		{"  template:", "  launchMode: Container\n  template:", "ranksPerPod must be 1"},
		{"command: [/solver, -n, \"100\"]", "command: []", "needs a command"},
		{"command: [/solver, -n, \"100\"]", "args: [x]", "needs a command"},
		{"      containers:", "      containers:\n      - {name: other, image: x, command: [go]}", "one container"},
		{"      containers:", "      restartPolicy: OnFailure\n      containers:", "restartPolicy is Never"},
		{"      containers:", "      hostNetwork: true\n      containers:", "hostNetwork"},
		{"  template:", "  devices: [{resource: hca}]\n  template:", "DOMAIN/NAME"},
		{"  template:", "  devices: [{resource: a/b, count: 0}]\n  template:", "count"},
		{"  template:", "  devices: [{resource: a/b}, {resource: a/b}]\n  template:", "Duplicate"},
		{"  template:", "  transport: {type: RDMA, policy: Required}\n  template:", "asks for no outrigger.dev/hca"},
		{"  template:", "  transport: {type: Pigeon}\n  template:", "transport.type"},
		{"  template:", "  memory: {arena: 1Ki}\n  template:", "arena is 64Ki to 16Ti"},
		{"  template:", "  memory: {slab: 2Gi}\n  template:", "slab is 256Ki to 1Gi"},
		{"  template:", "  managedBy: me\n  template:", "managedBy is DOMAIN/NAME"},
		{"  template:", "  runPolicy: {restartLimit: -1}\n  template:", "restartLimit"},
		{"  template:", "  runPolicy: {activeDeadlineSeconds: 0}\n  template:", "activeDeadlineSeconds"},
		{"  template:", "  runPolicy: {disruption: Maybe}\n  template:", "disruption"},
	} {
		text := strings.Replace(goodJob, c.from, c.to, 1)
		if text == goodJob {
			t.Fatalf("%q is not in the job", c.from)
		}
		u := object(t, v1alpha1.Kind, text)
		u.SetNamespace(ns)
		if err := api.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s\n\terror: %v\n\twant one about: %s", c.from, c.to, err, c.want)
		}
	}
}

// TestUnchangeable: what the job was started with stays; its run policy may
// change.
func TestUnchangeable(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, goodJob)
	u.SetNamespace(ns)
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"ranks":6}}`:                                                        "cannot be changed",
		`{"spec":{"ranksPerPod":1}}`:                                                  "cannot be changed",
		`{"spec":{"managedBy":"a.b/c"}}`:                                              "cannot be changed",
		`{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`:                     "template cannot be changed",
		`{"spec":{"transport":{"type":"TCP"}}}`:                                       "transport cannot be changed",
		`{"spec":{"runPolicy":{"suspend":true}}}`:                                     "",
		`{"spec":{"runPolicy":{"restartLimit":3,"ttlSecondsAfterFinished":10}}}`:      "",
		`{"spec":{"runPolicy":{"activeDeadlineSeconds":5,"disruption":"Prevented"}}}`: "",
	} {
		err := api.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
		if want == "" && err != nil || want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", patch, err, want)
		}
	}
}

const goodProfile = `
metadata: {name: good}
spec: {rendezvous: Get, eagerLimit: 8Ki, fragment: 64Ki, credit: 1Mi, encryption: TLS, waitPolicy: Block, heartbeatMilliseconds: 500, deadAfterMilliseconds: 3000}
`

// TestRefusedProfiles is the same for FabricProfiles.
func TestRefusedProfiles(t *testing.T) {
	ns := namespace(t)
	kind := v1alpha1.GroupVersion.WithKind("FabricProfile")
	good := object(t, kind, goodProfile)
	good.SetNamespace(ns)
	if err := api.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"rendezvous: Get", "rendezvous: Fax", "rendezvous"},
		{"eagerLimit: 8Ki", "eagerLimit: 65Ki", "eagerLimit is 1 to 64Ki"},
		{"eagerLimit: 8Ki", "eagerLimit: 0", "eagerLimit is 1 to 64Ki"},
		{"fragment: 64Ki", "fragment: 2Mi", "fragment is 64 to 1Mi"},
		{"credit: 1Mi", "credit: 1Ki", "credit is 128Ki to 1Gi"},
		{"encryption: TLS", "encryption: Rot13", "encryption"},
		{"waitPolicy: Block", "waitPolicy: Nap", "waitPolicy"},
		{"deadAfterMilliseconds: 3000", "deadAfterMilliseconds: 900", "at least twice"},
		{"heartbeatMilliseconds: 500", "heartbeatMilliseconds: 0", "heartbeatMilliseconds"},
	} {
		text := strings.Replace(goodProfile, c.from, c.to, 1)
		if text == goodProfile {
			t.Fatalf("%q is not in the profile", c.from)
		}
		u := object(t, kind, text)
		u.SetName("bad")
		u.SetNamespace(ns)
		if err := api.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s\n\terror: %v\n\twant one about: %s", c.from, c.to, err, c.want)
		}
	}
}
