package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/issuer"
)

// Calls per second of the issuer's own client: reviews of tokens, one per pod if
// signatures do not decide, and reads of pods that the caches do not have. The limit is
// separate, so that neither the start of a large job nor untrusted callers delay the
// controller.
const (
	reviewQPS   = 400
	reviewBurst = 800
)

// issue adds the issuer to a manager, and returns the keys that it shares with the
// controller.
func (o *options) issue(ctx context.Context, config *rest.Config, m ctrl.Manager, log logr.Logger) (*issuer.Keys, error) {
	namespace := o.home()
	if namespace == "" {
		return nil, errors.New("issuer: --leader-election-namespace is needed outside a pod: the issuer's Secret is there")
	}
	if o.issuerURL == "" {
		o.issuerURL = fmt.Sprintf("https://%s.%s.svc%s", issuer.SecretName, namespace, issuer.Path)
	}
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = reviewQPS, reviewBurst
	api, err := client.New(own, client.Options{Scheme: m.GetScheme()})
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	keys, err := issuer.Load(ctx, api, namespace)
	if err != nil {
		return nil, err
	}
	signatures, err := o.signatures(own)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.issuer)
	if err != nil {
		return nil, fmt.Errorf("--issuer-bind-address: %w", err)
	}
	return keys, m.Add(&issuer.Server{
		Keys: keys, Cache: m.GetClient(), Live: api, Reviews: issuer.ReviewsBy(api), Signatures: signatures,
		OfPlace: controller.OfPlace, CheckAddress: o.checkAddress,
		URL: o.issuerURL, Listener: listener, Log: slog.New(logr.ToSlogHandler(log)),
	})
}

// signatures returns a verifier of tokens with the keys that the API server publishes;
// nil if every token has to be reviewed.
func (o *options) signatures(config *rest.Config) (*issuer.Signatures, error) {
	if o.reviewTokens {
		return nil, nil
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	fetch := func(ctx context.Context, path string) ([]byte, error) {
		return server.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	}
	return &issuer.Signatures{Fetch: fetch, Now: time.Now}, nil
}
