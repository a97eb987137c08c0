//go:build cluster

package mpijob

import (
	"os"
	"regexp"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// tag is the tag of the images in docs/examples; the cluster has the images of this tree.
var tag = regexp.MustCompile(`outrigger\.dev/outrigger-examples:\S+`)

// The manifests that `outrigger run -f` runs on one machine run unchanged on a cluster.
func TestExamples(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	for _, name := range []string{"cg", "ring", "restart"} {
		text, err := os.ReadFile("../../docs/examples/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		file := t.TempDir() + "/job.yaml"
		if err := os.WriteFile(file, tag.ReplaceAll(text, []byte(lab.Image("outrigger-examples"))), 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "apply", "-n", ns, "-f", file)
	}
	for name, restarts := range map[string]int32{"cg": 0, "ring": 0, "restart": 1} {
		j := &v1alpha1.MPIJob{}
		j.Namespace, j.Name = ns, name
		j = becomes(t, j, v1alpha1.ConditionComplete)
		if got := deref(j.Status.Restarts); got != restarts && !(got == -1 && restarts == 0) {
			t.Errorf("%s: %d restarts, want %d", name, got, restarts)
		}
	}
}
