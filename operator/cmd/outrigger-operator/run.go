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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
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
	user                                 int64
}

func run(ctx context.Context, o *options) error {
	logger, err := o.logger()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	if err := controller.AwaitServer(ctx, config, &o.serving); err != nil {
		return err
	}
	m, err := controller.NewManager(config, &o.serving)
	if err != nil {
		return err
	}
	figures, err := controller.NewMetrics(metrics.Registry, m.GetClient(), m.Elected(), o.namespaceLabel)
	if err != nil {
		return err
	}
	if err := o.describe(); err != nil {
		return err
	}
	keys, err := o.issue(ctx, config, m, logger)
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Keys: keys, IssuerURL: o.issuerURL,
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("outrigger-operator"),
		Starting: controller.NewAsker(), Metrics: figures, NoWebhook: !o.webhook, Now: time.Now,
	}
	if err := o.ask(r); err != nil {
		return err
	}
	r.Options = o.desired
	if err := r.Setup(ctx, m, o.workers); err != nil {
		return err
	}
	if o.webhook {
		server, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
		pods := &webhook.Pods{
			MinorOf: func(ctx context.Context) (int, error) {
				v := new(version.Info)
				text, err := server.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
				if err == nil {
					err = json.Unmarshal(text, v)
				}
				return webhook.Minor(v.Minor), err
			},
			Options: o.desired, Watched: o.serving.Watch, OfPlace: controller.OfPlace, Events: r.Events,
			LimitsOf: func(ctx context.Context, namespace string) []corev1.LimitRange {
				return controller.Limits(ctx, m.GetAPIReader(), namespace)
			},
			UsersOf: func(ctx context.Context, namespace string) (inject.UIDs, error) {
				return controller.Users(ctx, m.GetAPIReader(), namespace)
			},
		}
		if err := webhook.Setup(m, pods, webhook.Certificates(o.certificates), o.home(), o.serving.Certificates); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// logger returns the logger of the whole process.
func (o *options) logger() (logr.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level: %w", err)
	}
	logger := logr.FromSlogHandler(webhook.Quiet(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}), time.Now))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger, nil
}

// home returns the namespace of the operator's own objects; empty outside of a pod,
// unless a flag sets it.
func (o *options) home() string { return cmp.Or(o.serving.Namespace, webhook.Namespace()) }

// describe parses the flags that describe objects of jobs as JSON.
func (o *options) describe() error {
	if o.user < 0 {
		return fmt.Errorf("--sidecar-user is %d, want 0 (the platform chooses) or the number of a user", o.user)
	}
	o.desired.User = &o.user
	if o.sidecar != "" {
		if err := json.Unmarshal([]byte(o.sidecar), &o.desired.Sidecar); err != nil {
			return fmt.Errorf("--sidecar-resources: %w", err)
		}
	}
	if o.policies == "" {
		return nil
	}
	p, err := desired.ParsePolicies(o.policies, o.home())
	if err != nil {
		return fmt.Errorf("--job-network-policies: %w", err)
	}
	o.desired.Policies = p
	return nil
}

// ask sets the sources of transports, failures and waits to requests to sidecars,
// unless sidecars answer only within their pods.
func (o *options) ask(r *controller.Reconciler) error {
	switch o.sidecarMetrics {
	case metricsNetwork:
		asker := controller.NewAsker()
		r.Transports, r.Waiters, r.Failures = asker, asker, asker
		return nil
	case metricsLoopback:
		o.desired.LocalMetrics = true
		return nil
	}
	return fmt.Errorf("--sidecar-metrics is %q, want %s or %s", o.sidecarMetrics, metricsNetwork, metricsLoopback)
}
