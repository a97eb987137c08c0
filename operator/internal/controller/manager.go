package controller

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// leaseName is the name of the lease for leader election.
const leaseName = "outrigger-operator." + names.Group

// Serving configures the addresses of a manager and its leader election.
type Serving struct {
	Metrics, Health string // addresses of the servers for metrics and probes; "0": not served
	Guarded         bool   // serve metrics over HTTPS, to clients with a token that has the right to them
	Profiles        string // address of pprof; empty: not served
	Elect           bool
	Namespace       string   // namespace of the lease; empty: the pod's own
	Certificates    string   // directory of the webhook's certificate
	Watch           []string // namespaces to watch; nil: all
}

// NewManager makes a manager whose caches hold only the objects that the operator uses.
func NewManager(server *rest.Config, s *Serving) (ctrl.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	ours, err := labels.NewRequirement(names.LabelJob, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	yes := true
	ofJobs := labels.NewSelector().Add(*ours)
	m, err := ctrl.NewManager(server, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metrics.Options{BindAddress: nowhere}, // the bounded server in serve.go has them
		HealthProbeBindAddress:  nowhere,                               // the bounded server in serve.go answers the probes
		PprofBindAddress:        s.Profiles,
		LeaderElection:          s.Elect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: s.Namespace,
		WebhookServer:           newWebhooks(s.Certificates),
		// A leader that ends releases the lease, so that the next one starts at once;
		// this process then ends.
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultNamespaces: watched(s.Watch),
			DefaultTransform:  cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Label: ofJobs, Transform: lean}, &batchv1.Job{}: {Label: ofJobs, Transform: lean}, &v1alpha1.MPIJob{}: {Transform: lean}, &v1alpha1.FabricProfile{}: {Transform: lean},
			},
		},
		// A process with two managers is a test of two operators, so controller names
		// need not be unique.
		Controller: config.Controller{SkipNameValidation: &yes},
		// Secrets are never listed or watched: the operator may not read those of
		// others.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{},
		}}}, // unstructured objects, such as PodGroups, are never cached
	})
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	if m, err = s.bounded(m); err != nil {
		return nil, err
	}
	for _, add := range []func(string, healthz.Checker) error{m.AddHealthzCheck, m.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watched returns the namespaces that the caches hold; nil: all.
func watched(list []string) map[string]cache.Config {
	if len(list) == 0 {
		return nil
	}
	all := map[string]cache.Config{}
	for _, ns := range list {
		all[ns] = cache.Config{}
	}
	return all
}

// Scheme returns a scheme with the kinds of Kubernetes and of Outrigger.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}
