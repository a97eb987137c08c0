//go:build cluster

// Package apitest tests the operator against a real API server.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
)

// The API server of all tests of this package, with the custom resources installed.
var (
	config *rest.Config
	api    client.Client
)

func TestMain(m *testing.M) {
	code, err := withServer(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withServer(m *testing.M) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	env, err := harness.Env(ctx)
	if err != nil {
		return 1, err
	}
	if err := use(ctx, env); err != nil {
		_ = env.Stop() // only the first error is reported
		return 1, err
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done, err := operate(ctx)
	if err != nil {
		return 1, errors.Join(err, env.Stop())
	}
	resident = signer
	code := m.Run()
	stop()
	return code, errors.Join(<-done, env.Stop())
}

// use makes env the environment of the tests.
func use(ctx context.Context, env *harness.Environment) error {
	config = env.Config
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	if api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return installResources(ctx)
}

// alone gives a test its own API server, for which no operator runs.
func alone(t *testing.T) {
	t.Helper()
	env, err := harness.Env(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	was, of := config, api
	t.Cleanup(func() {
		config, api = was, of
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := use(t.Context(), env); err != nil {
		t.Fatal(err)
	}
}

// installResources applies the generated definitions and waits until they are served.
func installResources(ctx context.Context) error {
	files, err := filepath.Glob("../../../charts/outrigger/generated/crds/*.yaml")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no resource definitions: %w", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		u := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			return err
		}
		if err := api.Create(ctx, u); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	for ctx.Err() == nil {
		jobs := api.List(ctx, new(v1alpha1.MPIJobList))
		profiles := api.List(ctx, new(v1alpha1.FabricProfileList))
		if jobs == nil && profiles == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ctx.Err()
}

// namespace creates a namespace for a test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "story-"}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	// A job that remained would be reconciled during the quiet periods of other tests.
	t.Cleanup(func() {
		if err := api.DeleteAllOf(context.Background(), new(v1alpha1.MPIJob), client.InNamespace(ns.Name)); err != nil {
			t.Error(err)
		}
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}}
	if err := api.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// object parses YAML into an object of the given kind.
func object(t *testing.T, kind schema.GroupVersionKind, text string) *unstructured.Unstructured {
	t.Helper()
	u := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	u.SetGroupVersionKind(kind)
	return u
}
