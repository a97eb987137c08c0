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

func install(ctx context.Context) error {
	text, err := os.ReadFile("testdata/operator.yaml")
	if err != nil {
		return err
	}
	for _, image := range []string{"outrigger-operator", "outrigger-sidecar"} {
		text = bytes.ReplaceAll(text, []byte("outrigger.dev/"+image+":VERSION"), []byte(lab.Image(image)))
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", "../../charts/outrigger/generated/crds"},
		{"apply", "-f", "../../charts/outrigger/generated/role.yaml", "-f", "-"},
		{"rollout", "status", "-n", "outrigger-system", "deployment/op", "--timeout=120s"},
		{"wait", "--for=condition=Established", "crd/mpijobs.outrigger.dev", "--timeout=60s"},
	} {
		cmd := lab.Kubectl(ctx, args...)
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
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
