package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Names of objects in the chart.
const (
	configuration = "outrigger"
	secret        = "outrigger-webhook-cert"
	service       = "outrigger-webhook"
)

// Certificates is the source of the webhook's certificate.
type Certificates string

const (
	// Managed certificates are made, renewed and published by the operator.
	Managed Certificates = "managed"
	// Mounted certificates are made by another program, such as cert-manager.
	Mounted Certificates = "mounted"
)

// Setup adds the webhook to a manager, with the manager's clients. It serves once there
// is a certificate in dir.
func Setup(m ctrl.Manager, pods *Pods, certificates Certificates, namespace, dir string) error {
	ready := make(chan struct{})
	switch certificates {
	case Managed:
		if namespace == "" {
			return fmt.Errorf("webhook: --namespace is needed outside a pod: the certificates' Secret is there")
		}
		err := rotator.AddRotator(m, &rotator.CertRotator{
			SecretKey: types.NamespacedName{Namespace: namespace, Name: secret},
			CertDir:   dir, CAName: "outrigger-webhook", CAOrganization: "outrigger", IsReady: ready,
			DNSName:  service + "." + namespace + ".svc",
			Webhooks: []rotator.WebhookInfo{{Name: configuration, Type: rotator.Mutating}},
			// Every replica serves, with the certificate in the Secret.
			RequireLeaderElection: false,
		})
		if err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
	case Mounted:
		close(ready)
	default:
		return fmt.Errorf("webhook: certificates are %s or %s, not %q", Managed, Mounted, certificates)
	}
	pods.Client, pods.Live, pods.Decoder = m.GetClient(), m.GetAPIReader(), admission.NewDecoder(m.GetScheme())
	l := &late{manager: m, ready: ready, handler: pods}
	if err := m.AddReadyzCheck("webhook", l.check); err != nil {
		return err
	}
	return m.Add(l)
}

// late starts the webhook's server when there is a certificate: a server without one
// would end the whole manager.
type late struct {
	manager ctrl.Manager
	ready   <-chan struct{}
	handler admission.Handler
	server  atomic.Pointer[webhook.Server]
}

// NeedLeaderElection returns false: every replica serves.
func (l *late) NeedLeaderElection() bool { return false }

// Start waits for the certificate, and then lets the manager start the server.
func (l *late) Start(ctx context.Context) error {
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil
	}
	s := l.manager.GetWebhookServer()
	s.Register(Path, &admission.Webhook{Handler: l.handler})
	l.server.Store(&s)
	return nil
}

// check returns nil once the webhook listens.
func (l *late) check(r *http.Request) error {
	s := l.server.Load()
	if s == nil {
		return errors.New("the webhook has no certificate yet")
	}
	return (*s).StartedChecker()(r)
}

// Namespace returns the namespace of the pod of this process; empty outside of a pod.
func Namespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
