package inject

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestDocumentedPod: the pod is changed as the documents say.
func TestDocumentedPod(t *testing.T) {
	for file, claims := range map[string][]string{
		"mpijob-reference.md": {
			fmt.Sprintf("It is memory of at most %d MiB", sharedBytes>>20),
			fmt.Sprintf("The sidecar requests %s of CPU and has no limit", cpu.String()),
			fmt.Sprintf("`%s`, `%s`, `%s`", names.VolumeJob, names.VolumeToken, names.VolumeNone),
			fmt.Sprintf("Sidecars reach each other at port %d", names.PortPeers),
		},
		"install.md": {
			fmt.Sprintf("a projected service-account token of %d minutes with the audience `%s`", tokenSeconds/60, names.TokenAudience),
			fmt.Sprintf("No capability, user %d", UserDefault),
			fmt.Sprintf("inside of the pod alone, on port %d, and %d has health", names.PortMetricsLocal, names.PortMetrics),
		},
	} {
		text, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, claim := range claims {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), claim) {
				t.Errorf("docs/%s does not say %q", file, claim)
			}
		}
	}
}
