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

// Names that the chart gives.
const (
	configuration = "outrigger"
	secret        = "outrigger-webhook-cert"
	service       = "outrigger-webhook"
)

// Certificates says where the webhook's certificate comes from.
type Certificates string

const (
	// Managed certificates are made, renewed and published by the operator.
	Managed Certificates = "managed"
	// Mounted certificates are somebody else's business, such as cert-manager's.
	Mounted Certificates = "mounted"
)

// Setup serves the webhook from a manager, once it has a certificate in dir, with the
// manager's clients.
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
			// Every replica serves; the Secret is the place where they agree.
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

// late serves the webhook as soon as there is a certificate: a server without
// one would end the whole manager.
type late struct {
	manager ctrl.Manager
	ready   <-chan struct{}
	handler admission.Handler
	server  atomic.Pointer[webhook.Server]
}

// NeedLeaderElection is false: every replica serves.
func (l *late) NeedLeaderElection() bool { return false }

// Start waits for the certificate and leaves the server to the manager.
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

// check reports the webhook as ready once it listens.
func (l *late) check(r *http.Request) error {
	s := l.server.Load()
	if s == nil {
		return errors.New("the webhook has no certificate yet")
	}
	return (*s).StartedChecker()(r)
}

// Namespace is that of the pod that this process runs in; empty outside one.
func Namespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
