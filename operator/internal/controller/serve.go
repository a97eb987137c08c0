package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/outrigger-hpc/outrigger/api/connlimit"
	"github.com/outrigger-hpc/outrigger/operator/internal/guard"
)

// nowhere is the address that turns a server off.
const nowhere = "0"

// lastAnswers is how long a server that shuts down waits for requests under way.
const lastAnswers = 5 * time.Second

// Bounds of each port against untrusted clients: every pod of the cluster may connect,
// unless a network policy is enforced. A probe or a scraper sends its request at once
// and gets a connection slot even if others hold many. A scraper may be refused if its
// own address opens more than Rate connections a second. A probe never is, since its
// answer costs almost nothing.
var (
	probes = connlimit.Bounds{
		Slots: 64, Buffer: 32 << 10, Header: 8 << 10, Gap: 20 * time.Millisecond,
		Request: 5 * time.Second, Answer: 15 * time.Second, Idle: time.Minute,
	}
	scrapes = connlimit.Bounds{
		Slots: 64, Buffer: 32 << 10, Header: guard.HeaderMax, Rate: 500, Gap: 20 * time.Millisecond,
		Request: 5 * time.Second, Answer: 15 * time.Second, Idle: time.Minute,
	}
	// The API server opens a connection for each review under way, and has 10 seconds
	// for each (charts/outrigger). Within that time it does not lose a connection to
	// another client.
	reviewed = connlimit.Bounds{
		Slots: 512, Share: 384, Hold: 10 * time.Second, Buffer: 32 << 10, Header: 16 << 10,
		Request: 5 * time.Second, Answer: 15 * time.Second, Idle: time.Minute,
	}
)

// Bounds of reviews. reviewMax is the bytes of a request: twice an object of the API
// server's maximum size. reviewsAtOnce is the number of requests that are handled at
// once; others wait.
const (
	reviewMax     = 3 << 20
	reviewsAtOnce = 16
)

// serving is a manager with bounded servers, which controller-runtime does not have.
type serving struct {
	ctrl.Manager
	healthz, readyz healthz.Handler
}

func newServing(m ctrl.Manager) *serving {
	none := func() healthz.Handler { return healthz.Handler{Checks: map[string]healthz.Checker{}} }
	return &serving{Manager: m, healthz: none(), readyz: none()}
}

// AddHealthzCheck adds a check before the manager starts.
func (s *serving) AddHealthzCheck(name string, check healthz.Checker) error {
	s.healthz.Checks[name] = check
	return nil
}

// AddReadyzCheck adds a check before the manager starts.
func (s *serving) AddReadyzCheck(name string, check healthz.Checker) error {
	s.readyz.Checks[name] = check
	return nil
}

// bounded adds bounded servers for health and metrics to a manager.
func (s *Serving) bounded(m ctrl.Manager) (ctrl.Manager, error) {
	b := newServing(m)
	if s.Health != nowhere && s.Health != "" {
		l, err := net.Listen("tcp", s.Health)
		if err != nil {
			return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
		}
		if err := m.Add(server("health probe", l, b.health(), &probes, nil)); err != nil {
			return nil, err
		}
	}
	if s.Metrics == nowhere || s.Metrics == "" {
		return b, nil
	}
	handler, secure, err := s.scraped(m)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", s.Metrics)
	if err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	return b, m.Add(server("metrics", l, handler, &scrapes, secure))
}

// health returns the handler for probes.
func (s *serving) health() http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{"/healthz": &s.healthz, "/readyz": &s.readyz} {
		mux.Handle(path, http.StripPrefix(path, h))
		mux.Handle(path+"/", http.StripPrefix(path, h))
	}
	return mux
}

// scraped returns the handler and the TLS configuration for metrics. If metrics are
// guarded, the server makes a self-signed certificate: a scraper cannot verify the
// operator, but the operator verifies the scraper's token with the API server.
func (s *Serving) scraped(m ctrl.Manager) (http.Handler, *tls.Config, error) {
	h := promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	mux := http.NewServeMux()
	var secure *tls.Config
	if s.Guarded {
		filter, err := guard.Provider(m.GetConfig(), m.GetHTTPClient())
		if err != nil {
			return nil, nil, err
		}
		if h, err = filter(m.GetLogger().WithName("metrics"), h); err != nil {
			return nil, nil, err
		}
		cert, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
		if err != nil {
			return nil, nil, fmt.Errorf("certificate of the metrics: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate of the metrics: %w", err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	}
	mux.Handle("/metrics", h)
	return mux, secure, nil
}

// server returns a server that the manager starts before its caches have filled.
func server(name string, l net.Listener, h http.Handler, b *connlimit.Bounds, secure *tls.Config) *manager.Server {
	l = connlimit.Listen(l, b)
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	wait := lastAnswers
	served := b.Server(h)
	served.ErrorLog = log.New(&handshakes{name, served.ErrorLog.Writer(), rate.NewLimiter(handshakesRate, handshakesBurst)}, "", 0)
	return &manager.Server{Name: name, Server: served, Listener: l, ShutdownTimeout: &wait}
}

// handshakes removes the lines about failed TLS handshakes from the error log of a
// server and logs them at level debug. Every pod can cause one, and the API server
// causes them before it has the certificate of a webhook that was just turned on.
type handshakes struct {
	name  string
	to    io.Writer
	limit *rate.Limiter
}

// Lines per second of failed handshakes that are logged: untrusted clients must not
// fill the log.
const handshakesRate, handshakesBurst = 1, 10

func (h *handshakes) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("TLS handshake error")) {
		return h.to.Write(line)
	}
	if h.limit.Allow() {
		ctrl.Log.V(levelDebug).Info(string(bytes.TrimSpace(line)), "server", h.name)
	}
	return len(line), nil
}

// levelDebug is slog's level debug as a logr level.
const levelDebug = -int(slog.LevelDebug)

// webhooks is a webhook server whose connections and requests are bounded.
type webhooks struct {
	*webhook.DefaultServer
	bounds  connlimit.Bounds
	started chan struct{}
}

func newWebhooks(dir string) *webhooks {
	return &webhooks{
		DefaultServer: &webhook.DefaultServer{Options: webhook.Options{CertDir: dir, Port: webhook.DefaultPort, WebhookMux: http.NewServeMux()}},
		bounds:        reviewed, started: make(chan struct{}),
	}
}

// Start serves until ctx ends. It reloads the certificate when the files in its
// directory change.
func (w *webhooks) Start(ctx context.Context) error {
	o := &w.Options
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", o.Host, o.Port))
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return w.serve(ctx, l)
}

func (w *webhooks) serve(ctx context.Context, l net.Listener) error {
	o := &w.Options
	certificate, err := certwatcher.New(filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key"))
	if err != nil {
		return errors.Join(fmt.Errorf("webhook: %w", err), l.Close())
	}
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = certificate.Start(watching) // the watcher logs its own errors
	}()
	defer func() {
		stop()
		<-ended
	}()
	close(w.started)
	s := server("webhook", l, bodies(o.WebhookMux), &w.bounds, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate.GetCertificate})
	return s.Start(ctx)
}

// StartedChecker returns a check that succeeds once the server listens.
func (w *webhooks) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-w.started:
			return nil
		default:
			return fmt.Errorf("the webhook does not listen yet on port %d", w.Options.Port)
		}
	}
}

// bodies bounds the number of requests under way and the bytes of each.
func bodies(h http.Handler) http.Handler {
	under := make(chan struct{}, reviewsAtOnce)
	return http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case under <- struct{}{}:
			defer func() { <-under }()
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}), reviewMax)
}
