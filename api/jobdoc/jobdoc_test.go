package jobdoc

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

func attempt() *Attempt {
	j := &v1alpha1.MPIJob{}
	j.Namespace, j.Name = "hpc", "cg"
	j.Spec.Ranks, j.Spec.RanksPerPod = 7, 3
	return &Attempt{Job: j, Number: 2}
}

// TestDocument: pods have the names that an Indexed Job gives them, and the last pod has the
// remaining ranks.
func TestDocument(t *testing.T) {
	d := attempt().Document("id")
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	last := bootstrap.Pod{Name: "cg-2-2", Address: "cg-2-2.cg-ranks.hpc.svc:7077", FirstRank: 6, Ranks: 1}
	if len(d.Pods) != 3 || d.Pods[2] != last || d.Job.Name != "hpc/cg" {
		t.Errorf("%+v", d)
	}
	if m := d.Memory; m.ArenaBytes != memory.ArenaDefault || m.SlabBytes != memory.SlabDefault {
		t.Errorf("memory %+v", m)
	}
}

// TestWords: a sidecar understands every value that a profile or a job may have. Only the
// value for the engine's own choice is left out.
func TestWords(t *testing.T) {
	largePaths := []v1alpha1.LargePath{v1alpha1.LargePathAuto, v1alpha1.LargePathTCP, v1alpha1.LargePathPull}
	for _, wait := range []v1alpha1.WaitPolicy{"Auto", "Poll", "Yield", "Block"} {
		for _, rendezvous := range []v1alpha1.Rendezvous{"Auto", "GetCQE", "Get", "Put", "PutNR", "RPut", "Stream"} {
			for _, transport := range []v1alpha1.TransportType{v1alpha1.TransportAuto, v1alpha1.TransportRDMA, v1alpha1.TransportTCP} {
				a := attempt()
				a.Profile.WaitPolicy, a.Profile.Rendezvous, a.Profile.Encryption = wait, rendezvous, v1alpha1.EncryptionTLS
				a.Profile.Exposure, a.Profile.LargePath = v1alpha1.ExposureAllowed, largePaths[len(rendezvous)%len(largePaths)]
				a.Job.Spec.Transport = v1alpha1.TransportSpec{Type: transport, Policy: v1alpha1.TransportRequired}
				raw, err := json.Marshal(a.Document("id"))
				if err != nil {
					t.Fatal(err)
				}
				d, err := bootstrap.Parse(raw)
				if err != nil {
					t.Fatalf("%s, %s, %s: %v", wait, rendezvous, transport, err)
				}
				u := d.Tuning
				if (u.Wait == "") != (wait == "Auto") || (u.Rendezvous == "") != (rendezvous == "Auto") ||
					(len(u.Require) == 0) != (transport == v1alpha1.TransportAuto) || u.Encrypt != bootstrap.EncryptTLS || u.Exposure != bootstrap.ExposureAllowed ||
					(u.LargePath == "") != (a.Profile.LargePath == v1alpha1.LargePathTCP) {
					t.Errorf("%s, %s, %s: %+v", wait, rendezvous, transport, u)
				}
			}
		}
	}
}

// TestCredit: the credit for which memory is reserved is the credit that the job's sidecars
// use. A profile's value takes precedence.
func TestCredit(t *testing.T) {
	own := resource.MustParse("2Mi")
	for _, c := range []struct {
		pods       int32
		profile    *resource.Quantity
		told, kept int64
	}{{256, nil, 0, 1 << 20}, {1024, nil, 256 << 10, 256 << 10}, {4096, nil, 128 << 10, 128 << 10}, {4096, &own, 2 << 20, 2 << 20}, {2, &own, 2 << 20, 2 << 20}} {
		a := attempt()
		a.Job.Spec.Ranks, a.Job.Spec.RanksPerPod, a.Profile.Credit = c.pods, 1, c.profile
		d := a.Document("id")
		if m := MemoryOf(&a.Job.Spec, &a.Profile, c.pods); d.Tuning.CreditBytes != c.told || m.Credit != c.kept {
			t.Errorf("%d pods: sidecars are told %d, %d are reserved, want %d and %d", c.pods, d.Tuning.CreditBytes, m.Credit, c.told, c.kept)
		}
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestCollectives: each algorithm of each collective that a document may name has a value of a
// profile, which becomes that name again.
func TestCollectives(t *testing.T) {
	var rules []bootstrap.CollectiveRule
	for i, c := range bootstrap.Collectives {
		for _, a := range bootstrap.Algorithms(c) {
			rules = append(rules, bootstrap.CollectiveRule{Collective: c, Algorithm: a, Ranks: i, Pods: 2 * i, MaxBytes: 1 << 40})
		}
	}
	a := attempt()
	a.Profile.Collectives = CollectiveRules(rules)
	d := a.Document("id")
	if !slices.Equal(rules, d.Tuning.Collectives) {
		t.Errorf("given %+v, in the document %+v", rules, d.Tuning.Collectives)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if first := a.Profile.Collectives[1]; first.Collective != "Barrier" || first.Algorithm != "TwoLevel" {
		t.Errorf("the second rule is %+v", first)
	}
}
