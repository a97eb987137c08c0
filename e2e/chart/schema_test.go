//go:build cluster

package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// TestTemplatesAreValid checks the output of `helm template` by the API server's own schemas,
// strictly: no unknown field, and no field twice. Monitors and certificates of other projects
// are left out, because a bare API server does not have their definitions; the trial, a hook,
// runs in e2e/mpijob.
func TestTemplatesAreValid(t *testing.T) {
	l := open(t)
	bin, err := harness.Programs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, values := range map[string]string{
		"defaults":   "crds.keep=true",
		"everything": "devicePlugin.enabled=true,devicePlugin.grant.enabled=true,operator.jobNetworkPolicies=true,sidecar.resources.limits.cpu=1,webhook.enabled=true,monitoring.dashboard.enabled=true,devicePlugin.injection=cdi,operator.replicas=3",
		"agent":      "devicePlugin.enabled=true,operator.enabled=false,crds.install=false",
		"operator":   "devicePlugin.enabled=false,networkPolicy.enabled=false,tests.enabled=false",
	} {
		manifests := exec.CommandContext(t.Context(), filepath.Join(l.bin, "helm"), "template", "outrigger", chartDir, "--no-hooks", "--namespace", namespace, "--set", values)
		manifests.Env = append(os.Environ(), "HOME="+t.TempDir())
		text, err := manifests.Output()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		apply := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "apply", "--dry-run=server", "--server-side", "--validate=strict", "-f", "-")
		apply.Env = append(os.Environ(), "KUBECONFIG="+l.env.Kubeconfig)
		apply.Stdin = bytes.NewReader(text)
		if out, err := apply.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}
