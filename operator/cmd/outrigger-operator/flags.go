package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
	"github.com/outrigger-hpc/outrigger/operator/internal/webhook"
)

// flags adds all flags, grouped by topic.
func (o *options) flags(c *cobra.Command) {
	o.jobFlags(c)
	o.issuerFlags(c)
	o.servingFlags(c)
	o.webhookFlags(c)
	o.workFlags(c)
}

// jobFlags adds the flags for the pods of jobs, and for the namespaces of jobs.
func (o *options) jobFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.desired.Image, "sidecar-image", "", "image with outrigger-sidecar and outrigger-launch (required)")
	f.StringVar(&o.desired.Pull, "sidecar-pull-policy", "", "Always, IfNotPresent or Never (default: Kubernetes')")
	f.StringVar(&o.desired.LogLevel, "sidecar-log-level", "", "log level of sidecars: debug, info, warn or error (default info)")
	f.StringVar(&o.sidecar, "sidecar-resources", "", "default resources of sidecars, as JSON: {\"limits\":{\"cpu\":\"1\"}}")
	f.StringVar(&o.sidecarMetrics, "sidecar-metrics", metricsNetwork, "where sidecars serve metrics and report: Network, port 9464 of the pod; or Loopback, port 9465 inside of the pod alone")
	f.Int64Var(&o.user, "sidecar-user", inject.UserDefault, "user of sidecars in namespaces that have no range of users (annotation openshift.io/sa.scc.uid-range); 0: the platform chooses")
	f.StringSliceVar(&o.serving.Watch, "watch-namespaces", nil, "run the MPIJobs of these namespaces (default: of all)")
	f.StringVar(&o.policies, "job-network-policies", "", "make a NetworkPolicy for each job; the value is a JSON object: operatorPods, the labels of the operator's pods; metricsFrom, the NetworkPolicyPeers that may read the metrics of sidecars in addition to the operator; otherPorts, the application's ports that are open, such as [{\"port\":8888}]; egress, Open or Restricted")
}

// issuerFlags adds the flags for the certificates of sidecars.
func (o *options) issuerFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.issuer, "issuer-bind-address", ":"+strconv.Itoa(names.PortIssuer), "serve sidecars their certificates here")
	f.StringVar(&o.issuerURL, "issuer-url", "", "where sidecars reach that (default: Service outrigger-issuer in the pod's own namespace)")
	f.BoolVar(&o.checkAddress, "issuer-check-address", true, "refuse tokens that do not come from their pod's address")
	f.BoolVar(&o.reviewTokens, "issuer-review-tokens", false, "have the API server review every token, a call for each pod, instead of checking its signature by the API server's published keys")
}

// servingFlags adds the flags for the addresses of this process.
func (o *options) servingFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.serving.Metrics, "metrics-bind-address", ":8080", "serve Prometheus metrics here; 0: nowhere")
	f.BoolVar(&o.serving.Guarded, "metrics-token", false, "serve metrics over HTTPS, and only to clients with a bearer token whose user may get the non-resource URL /metrics")
	f.BoolVar(&o.namespaceLabel, "metrics-namespace-label", false, "add the namespace to the counters of MPIJobs' changes")
	f.StringVar(&o.serving.Health, "health-probe-bind-address", ":8081", "serve /healthz and /readyz here")
	f.StringVar(&o.serving.Profiles, "pprof-bind-address", "", "serve Go's profiles here, without authentication (default: nowhere)")
}

// webhookFlags adds the flags for the webhook for pods of other controllers.
func (o *options) webhookFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.webhook, "webhook", false, "add sidecars to pods of other controllers")
	f.StringVar(&o.certificates, "webhook-certificates", string(webhook.Managed), "source of the webhook's certificates: managed, by this program, in the Secret outrigger-webhook-cert; or mounted, by another program")
	f.StringSliceVar(&o.desired.AllowedVariables, "webhook-allowed-variables", nil, "names of variables that other admission may add to sidecars, as workload identity does")
	f.StringSliceVar(&o.desired.AllowedMounts, "webhook-allowed-mounts", nil, "paths at which other admission may mount volumes into sidecars")
	f.StringVar(&o.serving.Certificates, "webhook-certificate-dir", "/tmp/k8s-webhook-server/serving-certs", "where tls.crt and tls.key of the webhook are mounted")
}

// workFlags adds the flags for the rates, the leader election and the log of this
// process.
func (o *options) workFlags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.serving.Elect, "leader-elect", false, "let one of several replicas lead")
	f.StringVar(&o.serving.Namespace, "leader-election-namespace", "", "namespace of the lease (default: the pod's own)")
	f.IntVar(&o.workers, "workers", 8, "jobs that are reconciled at once")
	f.Float32Var(&o.qps, "kube-api-qps", 100, "calls to the API server a second")
	f.IntVar(&o.burst, "kube-api-burst", 200, "burst of calls to the API server")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}
