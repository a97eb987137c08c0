package desired

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files again")

func attempt(name string, ranks, perPod int32) *Attempt {
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: name, UID: "0000"}}
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.LaunchMode = ranks, perPod, v1alpha1.LaunchProcesses
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver", Image: "example/solver:1", Command: []string{"/solver"}, Args: []string{"-n", "100"}}}
	return &Attempt{Job: j, Options: Options{Image: "outrigger.dev/outrigger-sidecar:1"}}
}

// TestGolden compares all objects that are made for a job with files that a person can read:
// the Job with its pods, and the job document.
func TestGolden(t *testing.T) {
	plain, all, mpi := attempt("cg", 4, 2), attempt("cg", 3, 1), attempt("hpcc", 4, 2)
	mpi.Job.Spec.MPI = v1alpha1.MPIAuto
	mpi.Job.Spec.MPIProgress = v1alpha1.MPIProgressAll
	mpi.Job.Spec.Memory.AllocationsFrom = new(resource.MustParse("64Ki"))
	all.Number = 2
	all.Options.Pull, all.Options.LogLevel = "Never", "debug"
	all.Profile.WaitPolicy, all.Profile.Encryption, all.Profile.Rendezvous = "Block", v1alpha1.EncryptionTLS, "Put"
	all.Profile.Exposure = v1alpha1.ExposureAllowed
	s := &all.Job.Spec
	s.LaunchMode = v1alpha1.LaunchContainer
	s.Devices = []v1alpha1.DeviceRequest{{Resource: names.ResourceHCA, Count: 2}}
	s.Transport = v1alpha1.TransportSpec{Type: v1alpha1.TransportRDMA, Policy: v1alpha1.TransportRequired}
	s.RunPolicy.Suspend, s.RunPolicy.Disruption = new(true), v1alpha1.DisruptionPrevented
	all.Job.Labels = map[string]string{LabelQueue: "hpc", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "600", "team": "a"}
	for file, a := range map[string]*Attempt{"plain.yaml": plain, "all.yaml": all, "mpi.yaml": mpi} {
		b, err := a.BatchJob()
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.ConfigMap(&Identity{ID: "0123456789abcdef", CA: []byte("the authority"), Issuer: bootstrap.Issuer{URL: "https://outrigger-issuer.outrigger-system.svc/v1/certificate", CA: "the issuer", TokenFile: "/var/run/secrets/outrigger.dev/token"}})
		if err != nil {
			t.Fatal(err)
		}
		objects := []any{a.Service(), c, b}
		if d := a.DisruptionBudget(); d != nil {
			objects = append(objects, d)
		}
		var text []string
		for _, o := range objects {
			raw, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, string(raw))
		}
		compare(t, file, strings.Join(text, "---\n"))
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it again):\n%s", path, diff)
	}
}

// identity returns an identity as the issuer creates it.
func identity(t *testing.T, id string) *Identity {
	t.Helper()
	authority, err := pki.FromSeed(id, [32]byte{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &Identity{ID: id, CA: authority.CA(), Issuer: bootstrap.Issuer{
		URL: "https://outrigger-issuer.outrigger-system.svc/v1/certificate", CA: string(authority.CA()), TokenFile: "/token",
	}}
}

// TestSidecarResources: a sidecar gets the resources that the operator sets for all jobs, and
// those that its job sets take precedence.
func TestSidecarResources(t *testing.T) {
	a := attempt("cg", 4, 2)
	cpu := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	a.Options.Sidecar = v1alpha1.SidecarResources{Requests: cpu("2"), Limits: cpu("3")}
	a.Job.Spec.Sidecar.Resources.Limits = cpu("4")
	b, err := a.BatchJob()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Spec.Template.Spec.InitContainers {
		if r := c.Resources; c.Name == names.ContainerSidecar && (r.Requests.Cpu().String() != "2" || r.Limits.Cpu().String() != "4") {
			t.Errorf("%+v", r)
		}
	}
}

// TestLargestJob checks the document of the largest job, with 4,096 pods of 128 ranks and the
// longest names. Thousands of sidecars read it, so it has the size of a page. Every host name
// in it is valid.
func TestLargestJob(t *testing.T) {
	a := attempt(strings.Repeat("j", 40), 524288, 128)
	a.Job.Namespace, a.Number = strings.Repeat("n", 63), 1000
	if a.Pods() != 4096 {
		t.Fatalf("%d pods", a.Pods())
	}
	id := strings.Repeat("0", 32)
	document, err := a.ConfigMap(identity(t, id))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(document.Data[names.BootstrapFile]); n > 4096 {
		t.Errorf("the document of 4,096 pods has %d bytes", n)
	}
	if text := document.Data[names.BootstrapFile]; strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the document has a private key: %s", text)
	}
	d, err := bootstrap.Parse([]byte(document.Data[names.BootstrapFile]))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Document(id).Pods, d.Pods); diff != "" {
		t.Errorf("the pattern does not stand for the pods (-pods +pattern):\n%s", diff)
	}
	for _, p := range d.Pods {
		if bad := validation.IsDNS1123Label(p.Name); bad != nil {
			t.Fatalf("host name %s: %v", p.Name, bad)
		}
		host, _, _ := strings.Cut(p.Address, ":")
		if bad := validation.IsDNS1123Subdomain(host); bad != nil {
			t.Fatalf("address %s: %v", p.Address, bad)
		}
	}
	if bad := validation.IsDNS1123Label(a.Name()); bad != nil {
		t.Errorf("Job %s: %v", a.Name(), bad)
	}
	if !Names(document, id) || Names(document, "other") || Names(new(corev1.ConfigMap), id) {
		t.Error("a document is not known by its identity")
	}
}

// TestWayToPeers: pods of other controllers find each other by the issuer, and pods of the
// operator's Jobs by names. The document that all sidecars read has the way.
func TestWayToPeers(t *testing.T) {
	for _, c := range []struct {
		management v1alpha1.PodManagement
		peers      string // peers of the existing document
		want, at   string
	}{
		{"", "", "cg-ranks", "cg-0-1.cg-ranks.hpc.svc:7077"},
		{v1alpha1.PodsExternal, "", ByIssuer, "cg-0-1:7077"},
		{v1alpha1.PodsExternal, "cg", "cg", "cg-0-1.cg.hpc.svc:7077"},
		{v1alpha1.PodsExternal, ByIssuer, ByIssuer, "cg-0-1:7077"},
	} {
		a := attempt("cg", 4, 2)
		a.Job.Namespace, a.Job.Spec.PodManagement, a.Peers = "hpc", c.management, c.peers
		document, err := a.ConfigMap(identity(t, "1"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := bootstrap.Parse([]byte(document.Data[names.BootstrapFile]))
		if err != nil {
			t.Fatal(err)
		}
		url := ""
		if c.want == ByIssuer {
			url = strings.TrimSuffix(d.TLS.Issuer.URL, "certificate") + "addresses"
		}
		if got := PeersOf(document); got != c.want || d.Pods[1].Address != c.at || d.TLS.Issuer.AddressesURL != url || a.Named() != (url == "") {
			t.Errorf("%+v: %q, %s, %q", c, got, d.Pods[1].Address, d.TLS.Issuer.AddressesURL)
		}
	}
}

// TestDocumentOfALaterRelease: after a downgrade, the operator recognizes a document of its
// attempt that has fields of a later release, and reads from it how the pods find each other.
func TestDocumentOfALaterRelease(t *testing.T) {
	a := attempt("cg", 4, 2)
	document, err := a.ConfigMap(identity(t, "1"))
	if err != nil {
		t.Fatal(err)
	}
	document.Data[names.BootstrapFile] = strings.Replace(document.Data[names.BootstrapFile], "{", `{"later":{"a":1},`, 1)
	if !Names(document, "1") || Names(document, "2") || PeersOf(document) != "cg-ranks" {
		t.Errorf("it names 1: %v, by %q", Names(document, "1"), PeersOf(document))
	}
}

// TestServiceLinks: pods of jobs get no variables for the namespace's Services, unless the
// template asks for them.
func TestServiceLinks(t *testing.T) {
	for _, c := range []struct {
		template *bool
		want     bool
	}{{nil, false}, {new(false), false}, {new(true), true}} {
		a := attempt("cg", 4, 2)
		a.Job.Spec.Template.Spec.EnableServiceLinks = c.template
		b, err := a.BatchJob()
		if err != nil {
			t.Fatal(err)
		}
		if links := b.Spec.Template.Spec.EnableServiceLinks; links == nil || *links != c.want {
			t.Errorf("template %v: enableServiceLinks is %v, want %v", c.template, links, c.want)
		}
	}
}

// TestSteering: each change of a wish patches the Job once. Changes of the Job by another
// controller are not reverted.
func TestSteering(t *testing.T) {
	a := attempt("cg", 4, 2)
	b, err := a.BatchJob()
	if err != nil {
		t.Fatal(err)
	}
	steer := func() map[string]any {
		t.Helper()
		if a.Steered(b) {
			return nil
		}
		raw, err := a.Steering(true).Of(new(batchv1.Job))
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		b.Annotations[annotationSteered] = m["metadata"].(map[string]any)["annotations"].(map[string]any)[annotationSteered].(string)
		return m
	}
	b.Spec.Suspend = new(true) // as a queueing controller does
	if m := steer(); m != nil {
		t.Errorf("a queueing controller is fought by %v", m)
	}
	a.Profile.WaitPolicy, a.Options.Image = "Block", "another" // these apply to the next attempt
	if m := steer(); m != nil {
		t.Errorf("a Job that runs is changed by %v", m)
	}
	for _, suspend := range []bool{true, false} {
		a.Job.Spec.RunPolicy.Suspend = new(suspend)
		m := steer()
		if m == nil || m["spec"].(map[string]any)["suspend"] != suspend {
			t.Errorf("suspend %v: %v", suspend, m)
		}
		if m := steer(); m != nil {
			t.Errorf("and again: %v", m)
		}
	}
	a.Job.Labels = map[string]string{LabelQueue: "hpc"}
	if m := steer(); m["spec"] != nil || m["metadata"].(map[string]any)["labels"].(map[string]any)[LabelQueue] != "hpc" {
		t.Errorf("the queue's name is changed by %v", m)
	}
	if *b.Spec.CompletionMode != batchv1.IndexedCompletion {
		t.Error("pods have no numbers")
	}
}

// TestNumeral: only the canonical form of a number is valid, because the caches are indexed by
// it.
func TestNumeral(t *testing.T) {
	for text, want := range map[string]int32{
		"0": 0, "7": 7, "2147483647": 2147483647, "": -1, "00": -1, "07": -1, "+7": -1, "-7": -1, "-0": -1, "2147483648": -1, "7 ": -1, "0x7": -1,
	} {
		if got := Numeral(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

// TestTemplatesLabels: labels of the template are kept, except those by which the job's pods
// are found. Annotations for the queue are copied to the Job.
func TestTemplatesLabels(t *testing.T) {
	a := attempt("cg", 4, 2)
	a.Job.Spec.Template.Labels = map[string]string{"app.kubernetes.io/part-of": "weather", "app.kubernetes.io/managed-by": "argo", names.LabelJob: "other", names.LabelAttempt: "7", "team": "a"}
	a.Job.Annotations = map[string]string{"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600", "kubectl.kubernetes.io/last-applied-configuration": "{}", annotationSteered: "x"}
	b, err := a.BatchJob()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app.kubernetes.io/part-of": "weather", "app.kubernetes.io/managed-by": "argo", names.LabelJob: "cg", names.LabelAttempt: "0", "team": "a"}
	if diff := cmp.Diff(labels, b.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of the pods (-want +got):\n%s", diff)
	}
	annotations := map[string]string{"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600", annotationSteered: a.wishes()}
	if diff := cmp.Diff(annotations, b.Annotations); diff != "" {
		t.Errorf("annotations of the Job (-want +got):\n%s", diff)
	}
}
