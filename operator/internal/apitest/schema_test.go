//go:build cluster

package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// refused has the fields of api/v1alpha1/testdata/refused.yaml.
type refused struct {
	Job, Profile                 string
	TakenJobs                    []struct{ From, To string }
	RefusedJobs, RefusedProfiles []struct{ From, To, Want string }
}

func readRefused(t *testing.T) *refused {
	t.Helper()
	text, err := os.ReadFile("../../../api/v1alpha1/testdata/refused.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := new(refused)
	if err := yaml.UnmarshalStrict(text, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDefaults: the schema sets the default of each field that is not given.
func TestDefaults(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, readRefused(t).Job)
	u.SetNamespace(ns)
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	j := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(u), j); err != nil {
		t.Fatal(err)
	}
	s := &j.Spec
	if s.LaunchMode != v1alpha1.LaunchProcesses || s.MPI != "" || s.Transport.Type != v1alpha1.TransportAuto || s.Transport.Policy != v1alpha1.TransportPreferred {
		t.Errorf("launch mode %q, MPI %q, transport %+v", s.LaunchMode, s.MPI, s.Transport)
	}
}

// TestPodMetadataIsKept: the labels and annotations of the job's pods are fields of the
// schema, so that the API server does not prune them.
func TestPodMetadataIsKept(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, strings.Replace(readRefused(t).Job, "template:", "template:\n    metadata: {labels: {team: a}, annotations: {note: b}}", 1))
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

// TestExamples: every field of the manifests in docs/examples is valid. `outrigger run -f`
// reads the same manifests.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	ns := namespace(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			u := new(unstructured.Unstructured)
			if err := yaml.UnmarshalStrict([]byte(doc), &u.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			u.SetNamespace(ns)
			if err := api.Create(t.Context(), u, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestRefusedJobs: every MPIJob in the table of invalid ones is refused with a message that
// names the remedy.
func TestRefusedJobs(t *testing.T) {
	ns := namespace(t)
	table := readRefused(t)
	for _, c := range table.RefusedJobs {
		text := strings.Replace(table.Job, c.From, c.To, 1)
		if text == table.Job {
			t.Fatalf("%q is not in the job", c.From)
		}
		u := object(t, v1alpha1.Kind, text)
		u.SetNamespace(ns)
		if err := api.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.Want) {
			t.Errorf("%s -> %s\n\terror: %v\n\twant one about: %s", c.From, c.To, err, c.Want)
		}
	}
}

// TestTakenJobs: unusual but valid jobs are accepted.
func TestTakenJobs(t *testing.T) {
	table := readRefused(t)
	for _, c := range table.TakenJobs {
		text := strings.Replace(table.Job, c.From, c.To, 1)
		if text == table.Job {
			t.Fatalf("%q is not in the job", c.From)
		}
		u := object(t, v1alpha1.Kind, text)
		u.SetNamespace(namespace(t))
		if err := api.Create(t.Context(), u); err != nil {
			t.Errorf("%s -> %s: %v", c.From, c.To, err)
		}
	}
}

// TestUnchangeable: the fields with which the job was started cannot be changed; its run
// policy can.
func TestUnchangeable(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, readRefused(t).Job)
	u.SetNamespace(ns)
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]string{
		`{"spec":{"ranks":6}}`:                                                        "cannot be changed",
		`{"spec":{"ranksPerPod":1}}`:                                                  "cannot be changed",
		`{"spec":{"mpi":"Auto"}}`:                                                     "mpi cannot be changed",
		`{"spec":{"managedBy":"a.b/c"}}`:                                              "cannot be changed",
		`{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`:                     "template cannot be changed",
		`{"spec":{"transport":{"type":"TCP"}}}`:                                       "transport cannot be changed",
		`{"spec":{"memory":{"arena":"1Gi"}}}`:                                         "memory cannot be changed",
		`{"spec":{"memory":{"slab":"8Mi"}}}`:                                          "memory cannot be changed",
		`{"spec":{"mpi":"Auto","memory":{"allocationsFrom":"64Ki"}}}`:                 "memory cannot be changed",
		`{"spec":{"mpi":"Auto","mpiProgress":"All"}}`:                                 "mpiProgress cannot be changed",
		`{"spec":{"stdinFile":"/in"}}`:                                                "stdinFile cannot be changed",
		`{"spec":{"profileName":"fast"}}`:                                             "profileName cannot be changed",
		`{"spec":{"sidecar":{"resources":{"limits":{"cpu":1}}}}}`:                     "sidecar cannot be changed",
		`{"spec":{"devices":[{"resource":"outrigger.dev/hca"}]}}`:                     "devices cannot be changed",
		`{"spec":{"runPolicy":{"gang":"Volcano"}}}`:                                   "runPolicy.gang cannot be changed",
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

// TestGangStays: the gang policy cannot be changed, even by adding or removing the whole run
// policy, which the rules on its fields do not see.
func TestGangStays(t *testing.T) {
	ns := namespace(t)
	u := object(t, v1alpha1.Kind, readRefused(t).Job)
	u.SetNamespace(ns)
	if err := unstructured.SetNestedField(u.Object, "Volcano", "spec", "runPolicy", "gang"); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for patch, refused := range map[string]bool{
		`{"spec":{"runPolicy":null}}`:                              true,
		`{"spec":{"runPolicy":{"gang":null}}}`:                     true,
		`{"spec":{"runPolicy":{"gang":"SchedulerPlugins"}}}`:       true,
		`{"spec":{"runPolicy":{"gang":"Volcano","suspend":true}}}`: false,
	} {
		err := api.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
		if refused != (apierrors.IsInvalid(err) && strings.Contains(err.Error(), "runPolicy.gang cannot be changed")) || !refused && err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// TestRefusedProfiles is TestRefusedJobs for FabricProfiles.
func TestRefusedProfiles(t *testing.T) {
	ns := namespace(t)
	table := readRefused(t)
	kind := v1alpha1.GroupVersion.WithKind("FabricProfile")
	good := object(t, kind, table.Profile)
	good.SetNamespace(ns)
	if err := api.Create(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	for _, c := range table.RefusedProfiles {
		text := strings.Replace(table.Profile, c.From, c.To, 1)
		if text == table.Profile {
			t.Fatalf("%q is not in the profile", c.From)
		}
		u := object(t, kind, text)
		u.SetName("bad")
		u.SetNamespace(ns)
		if err := api.Create(t.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.Want) {
			t.Errorf("%s -> %s\n\terror: %v\n\twant one about: %s", c.From, c.To, err, c.Want)
		}
	}
}
