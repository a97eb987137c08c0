//go:build cluster

package mpijob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// The cluster that all tests of this package share, and a client of it.
var (
	lab *harness.Cluster
	api client.Client
)

func TestMain(m *testing.M) {
	if err := prepare(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// prepare installs the operator on the cluster that is up.
func prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var err error
	if lab, err = harness.Open(ctx); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if api, err = client.New(lab.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return install(ctx)
}

// release is the namespace of the chart. It admits the node's agent, which needs the node's
// directories; the operator could run in a restricted one.
const release = "outrigger-system"

// install installs the whole chart, as docs/install.md does, with images that are on the nodes
// already. The agent runs without grants, which need a capability that a machine for tests may
// not have; e2e/devices tests them.
func install(ctx context.Context) error {
	tag := strings.TrimPrefix(lab.Image("outrigger-operator"), "outrigger.dev/outrigger-operator:")
	for _, args := range [][]string{
		{"create", "namespace", release},
		{"label", "namespace", release, "pod-security.kubernetes.io/enforce=privileged"},
	} {
		if out, err := lab.Kubectl(ctx, args...).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("AlreadyExists")) {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	out, err := helm(ctx, "upgrade", "--install", "outrigger", "../../charts/outrigger", "--wait", "--timeout=150s",
		"--set=images.pullPolicy=Never", "--set=images.tag="+tag, "--set=webhook.enabled=true", "--set=devicePlugin.enabled=true,operator.jobNetworkPolicies=true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("helm: %w\n%s", err, out)
	}
	return nil
}

// helm returns a command of the Helm with which the chart is checked.
func helm(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "../../bin/tools/helm", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+lab.Kubeconfig, "HELM_NAMESPACE="+release)
	return cmd
}

// kubectl runs kubectl and returns what it printed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab.Kubectl(t.Context(), args...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Logf("%s", failed.Stderr)
		}
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
