package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

type options struct {
	desired                              desired.Options
	metrics, health, namespace, logLevel string
	elect                                bool
	workers, burst                       int
	qps                                  float32
}

// leaseName is what replicas compete for.
const leaseName = "outrigger-operator." + names.Group

func run(ctx context.Context, o *options) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	m, err := newManager(config, o)
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("outrigger-operator"),
		Options: o.desired, Transports: controller.NewAsker(), Now: time.Now,
	}
	if err := r.Setup(ctx, m, o.workers); err != nil {
		return err
	}
	return m.Start(ctx)
}

func newManager(config *rest.Config, o *options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	ours, err := labels.NewRequirement(names.LabelJob, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:  o.health,
		LeaderElection:          o.elect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.namespace,
		// A leader that ends lets the next one go on at once; this process ends then.
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: only, &batchv1.Job{}: only}},
		// Secrets are never listed or watched: the operator may not read those of others.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{},
		}}},
	})
	if err != nil {
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("the custom resources are not installed (charts/outrigger): %w", err)
		}
		return nil, err
	}
	for _, add := range []func(string, healthz.Checker) error{m.AddHealthzCheck, m.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, err
		}
	}
	return m, nil
}
