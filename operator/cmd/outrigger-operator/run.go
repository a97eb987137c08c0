package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/webhook"
)

// Values of --sidecar-metrics.
const (
	metricsNetwork  = "Network"
	metricsLoopback = "Loopback"
)

type options struct {
	desired        desired.Options
	serving        controller.Serving
	webhook        bool
	certificates   string
	logLevel       string
	workers, burst int
	qps            float32

	sidecarMetrics                       string
	sidecar, issuer, issuerURL, policies string
	checkAddress, namespaceLabel         bool
	reviewTokens                         bool
}

func run(ctx context.Context, o *options) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	m, err := controller.NewManager(config, &o.serving)
	if err != nil {
		return err
	}
	figures, err := controller.NewMetrics(metrics.Registry, m.GetClient(), o.namespaceLabel)
	if err != nil {
		return err
	}
	if o.sidecar != "" {
		if err := json.Unmarshal([]byte(o.sidecar), &o.desired.Sidecar); err != nil {
			return fmt.Errorf("--sidecar-resources: %w", err)
		}
	}
	if o.policies != "" {
		p := &desired.Policies{Operator: cmp.Or(o.serving.Namespace, webhook.Namespace())}
		if err := json.Unmarshal([]byte(o.policies), &p.MetricsFrom); err != nil {
			return fmt.Errorf("--job-network-policies: %w", err)
		}
		o.desired.Policies = p
	}
	asker := controller.NewAsker()
	var transports controller.Transports = asker
	var waiters controller.Waiters = asker
	switch o.sidecarMetrics {
	case metricsNetwork:
	case metricsLoopback:
		o.desired.LocalMetrics, transports, waiters = true, nil, nil // there is nobody to ask
	default:
		return fmt.Errorf("--sidecar-metrics is %q, want %s or %s", o.sidecarMetrics, metricsNetwork, metricsLoopback)
	}
	keys, err := o.issue(ctx, config, m, logger)
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Keys: keys, IssuerURL: o.issuerURL,
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("outrigger-operator"),
		Options: o.desired, Transports: transports, Waiters: waiters, Metrics: figures, Now: time.Now,
	}
	if err := r.Setup(ctx, m, o.workers); err != nil {
		return err
	}
	if o.webhook {
		where := cmp.Or(o.serving.Namespace, webhook.Namespace())
		if err := webhook.Setup(m, o.desired, webhook.Certificates(o.certificates), where, o.serving.Certificates); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}
