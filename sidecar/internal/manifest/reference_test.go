package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Documents for authors of MPIJobs. hack/apiref writes the tables of the reference.
const (
	guidePage     = "../../../docs/mpijob.md"
	referencePage = "../../../docs/mpijob-reference.md"
)

// readDocument returns a document in one line.
func readDocument(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// TestMemoryExample checks that the sizes in the documents are those that the operator
// computes.
func TestMemoryExample(t *testing.T) {
	m := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{}, &v1alpha1.FabricProfileSpec{}, 4)
	m.Arena = 1 << 30
	mpi := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{MPI: v1alpha1.MPIAuto}, &v1alpha1.FabricProfileSpec{}, 4)
	large := jobdoc.MemoryOf(&v1alpha1.MPIJobSpec{}, &v1alpha1.FabricProfileSpec{}, 4096)
	for file, claims := range map[string][]string{
		guidePage: {
			fmt.Sprintf("<!-- memory -->%d<!-- --> MiB", m.Need(16, 64, 4)>>20),
			fmt.Sprintf("<!-- mpi -->%d<!-- --> MiB", mpi.Need(16, 64, 4)>>20),
		},
		referencePage: {
			fmt.Sprintf("= %d MiB for each sidecar; of an MPI program that requests no arena %d MiB", m.Need(16, 64, 4)>>20, mpi.Need(16, 64, 4)>>20),
			fmt.Sprintf("A sidecar of 4,096 pods keeps %.0f GiB in addition to the memory of its 128 ranks, and %.1f GiB with one rank.", float64(large.Own(128, 128*4096, 4096))/(1<<30), float64(large.Own(1, 4096, 4096))/(1<<30)),
		},
	} {
		for _, claim := range claims {
			if !strings.Contains(readDocument(t, file), claim) {
				t.Errorf("%s does not have %q", file, claim)
			}
		}
	}
}

// TestDocumentsExamples checks that every manifest in docs/examples can run, or has rules for
// collectives, and that the guide links to it.
func TestDocumentsExamples(t *testing.T) {
	files, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	text := readDocument(t, guidePage)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "collectives.yaml" {
			_, err = ReadCollectives(raw)
		} else if f, failed := Read(raw); failed != nil {
			err = failed
		} else {
			_, err = f.Plan(&Machine{})
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(text, "(examples/"+filepath.Base(file)+")") {
			t.Errorf("the document does not name %s", file)
		}
	}
}
