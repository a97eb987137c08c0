package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Times of AwaitServer: between two requests, for one request, and between two lines of
// the log.
const (
	serverPause   = 2 * time.Second
	serverRequest = 5 * time.Second
	serverLog     = time.Minute
)

// AwaitServer waits until the API server answers. A manager cannot be made without it, and
// an operator that ended for that would be started again after the kubelet's back-off only,
// which grows to five minutes: longer than most outages. Meanwhile /healthz answers, so that
// the kubelet does not end the operator, and /readyz does not. Errors that waiting does not
// resolve, such as an untrusted certificate, are left to the manager, which reports them.
func AwaitServer(ctx context.Context, server *rest.Config, s *Serving) error {
	config := rest.CopyConfig(server)
	config.Timeout = serverRequest
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	ask := func() error {
		_, err := client.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
		return err
	}
	away := ask()
	if !passes(away) {
		return ctx.Err()
	}
	stop, err := s.serveStarting(ctx)
	if err != nil {
		return err
	}
	defer stop()
	logged := time.Time{}
	for passes(away) {
		if now := time.Now(); now.Sub(logged) >= serverLog {
			ctrl.Log.Info("waiting for the API server", "error", away.Error())
			logged = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(serverPause):
		}
		away = ask()
	}
	return ctx.Err()
}

// passes reports whether an error of a request may end without a change of the
// configuration.
func passes(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
			apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// serveStarting answers probes until stop is called, which frees the port for the manager.
func (s *Serving) serveStarting(ctx context.Context) (stop func(), err error) {
	if s.Health == nowhere || s.Health == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", s.Health)
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server("health probe", l, mux, &probes, nil).Start(ctx) // ends with ctx
	}()
	return func() {
		cancel()
		<-done
	}, nil
}
