package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/connlimit"
)

// Path is the path of requests for certificates.
const Path = "/v1/certificate"

// Reviews creates TokenReviews.
type Reviews interface {
	Create(ctx context.Context, r *authenticationv1.TokenReview) error
}

// ReviewsBy returns Reviews by an API server.
func ReviewsBy(api client.Client) Reviews { return reviews{api} }

type reviews struct{ api client.Client }

func (r reviews) Create(ctx context.Context, t *authenticationv1.TokenReview) error {
	return r.api.Create(ctx, t)
}

// Bounds of what untrusted callers may cost: every pod may connect.
const (
	tokenMax    = 16 << 10
	requestTime = 20 * time.Second
	atOnce      = 64 // concurrent reviews; more callers wait
)

// callers bounds the connections of callers that have not been authenticated yet. Each
// takes 150 KiB for a handshake, a header, a request and the kernel's buffers: 38 MiB
// in total. A pod needs one for some milliseconds. The pods of a large job connect at
// once, from as many addresses; each keeps its slot for at most Hold, and the next ones
// wait. One address has at most Share slots, so that no pod takes all.
var callers = connlimit.Bounds{
	Slots: 256, Share: 16, Hold: 5 * time.Second, Buffer: 16 << 10, Header: tokenMax + 4<<10,
	Request: requestTime / 4, Answer: 2 * requestTime,
}

// If published keys verify tokens, a token that they cannot verify is usually forged; rarely,
// a key is new or a clock is wrong. At most strangeRate such tokens per second are reviewed,
// and at most searchRate callers per second that the caches do not have are read from the API
// server. Further requests are refused with status 503, and the caller may ask again.
const (
	strangeRate, strangeBurst = 10, 20
	searchRate, searchBurst   = 50, 500
)

// Server signs the certificates of sidecars. It is a Runnable of a manager, and runs in
// every replica.
type Server struct {
	Keys    *Keys
	Cache   client.Reader // pods, Jobs and MPIJobs; may be behind
	Live    client.Reader // the same, from the API server
	Reviews Reviews
	// Signatures verifies tokens without a call for each; nil: every token is reviewed.
	Signatures *Signatures
	// OfPlace selects the pods with one number in an attempt of a job in Cache.
	OfPlace func(job string, attempt, number int32) client.ListOption
	// CheckAddress refuses tokens that do not come from their pod's address.
	CheckAddress bool
	URL          string // URL by which sidecars reach the server
	Listener     net.Listener
	Log          *slog.Logger

	busy    chan struct{}
	strange *rate.Limiter // reviews of tokens that the published keys do not verify
	search  *rate.Limiter // reads of callers at the API server
	issued  *talk
	refused *talk

	pods, addressed              *shares // requests that are left to each pod, and to each address
	handshakes, networks         *shares // handshakes that are left to each address, and to each IPv6 /64
	strangers                    *shares // share of each address in the limiter strange
	searchPods, searchNamespaces *shares // shares of each pod and of each namespace in the limiter search
}

// NeedLeaderElection returns false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	own := &endpoint{make: s.certificate}
	if _, err := own.get(nil); err != nil {
		return err
	}
	bounds := callers
	if !s.CheckAddress { // addresses are translated, so that many pods share one
		bounds.Share = bounds.Slots
	}
	server := bounds.Server(s.Handler())
	server.ErrorLog = slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)
	server.SetKeepAlivesEnabled(false) // a connection is for one request
	listener := tls.NewListener(connlimit.Listen(s.Listener, &bounds), &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: own.get, GetConfigForClient: s.greeted})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve returns its error
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("issuer: %w", err)
	}
	return nil
}

// greeted refuses the handshakes of an address or a network with too many of them;
// (nil, nil) accepts one. The caller gets the alert internal_error, the only one that
// crypto/tls sends here. An HTTP status would need a complete handshake, whose cost
// this function bounds. A caller with half that rate gets status 429 (perAddress)
// before. A sidecar explains the alert in its log.
func (s *Server) greeted(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if !s.CheckAddress {
		return nil, nil
	}
	address, _, err := net.SplitHostPort(h.Conn.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	if s.handshakes.spend(address) > 0 {
		return nil, fmt.Errorf("%s connects more than %v times a second", address, handshakesPerAddress.rate)
	}
	if network := connlimit.Network(address); network != "" && s.networks.spend(network) > 0 {
		return nil, fmt.Errorf("%s connects more than %v times a second", network, handshakesPerNetwork.rate)
	}
	return nil, nil
}

// endpoint holds a replica's certificate, and makes a new one after half of its
// lifetime, since operators run for years.
type endpoint struct {
	make func() (*tls.Certificate, error)

	mu   sync.Mutex
	cert *tls.Certificate
}

func (e *endpoint) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cert != nil && time.Until(e.cert.Leaf.NotAfter) > certificateLife/2 {
		return e.cert, nil
	}
	cert, err := e.make()
	if err == nil {
		e.cert = cert
	}
	return cert, err
}

// certificate makes this replica's own certificate, signed by the authority of all
// replicas.
func (s *Server) certificate() (*tls.Certificate, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("issuer: the address %q, want https://HOST%s", s.URL, Path)
	}
	authority, err := s.Keys.endpoint()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	text, err := authority.Host(&key.PublicKey, u.Hostname())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key, Leaf: leaf}, nil
}

// Handler serves requests with a token in the Authorization header: a POST of a
// certificate request, PEM, returns the certificate, PEM; a GET of addresses of the
// pods of the caller's job returns JSON (bootstrap.Addresses). The body of an error is
// text for a person.
func (s *Server) Handler() http.Handler {
	s.busy = make(chan struct{}, atOnce)
	s.strange, s.search = rate.NewLimiter(strangeRate, strangeBurst), rate.NewLimiter(searchRate, searchBurst)
	s.handshakes, s.networks = handshakesPerAddress.shares(), handshakesPerNetwork.shares()
	s.pods, s.addressed, s.strangers = perPod.shares(), perAddress.shares(), strangePerAddress.shares()
	s.searchPods, s.searchNamespaces = searchPerPod.shares(), searchPerNamespace.shares()
	s.issued, s.refused = &talk{limit: rate.NewLimiter(issuedRate, issuedBurst)}, &talk{limit: rate.NewLimiter(refusedRate, refusedBurst)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, s.answers("a certificate was refused", "application/x-pem-file", s.sign))
	mux.HandleFunc("GET "+PathAddresses, s.answers("addresses of pods were refused", "application/json", s.addresses))
	return mux
}

// answers returns a handler for one kind of request. refused is the log message for its
// errors.
func (s *Server) answers(refused, form string, answer func(http.ResponseWriter, *http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := answer(w, r)
		if err != nil {
			status := http.StatusInternalServerError
			f := new(refusal)
			if errors.As(err, &f) {
				status = f.status
				if f.after > 0 {
					w.Header().Set("Retry-After", strconv.Itoa(f.after))
				}
			}
			if f.start {
				s.refused.warn(s.Log, f.cause, "from", r.RemoteAddr)
			} else {
				s.refused.warn(s.Log, refused, "from", r.RemoteAddr, "status", status, "cause", err)
			}
			http.Error(w, err.Error(), status)
			return
		}
		w.Header().Set("Content-Type", form)
		_, _ = w.Write(text) // the caller may be gone, and will ask again
	}
}

// tokenOf returns the token of a request.
func tokenOf(r *http.Request) (string, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > tokenMax {
		return "", refuse(http.StatusUnauthorized, "want a token: Authorization: Bearer TOKEN")
	}
	return token, nil
}

// admit determines the pod that has sent a request, by the request's token, and its
// position in its job.
func (s *Server) admit(ctx context.Context, r *http.Request, token string) (*caller, *callerPod, error) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "the caller's address: %v", err)
	}
	if s.CheckAddress {
		if wait := s.addressed.spend(address); wait > 0 {
			return nil, nil, tooOften(wait, "%s asks more than %v times a second", address, perAddress.rate)
		}
	}
	c, err := s.whose(ctx, token, address)
	if err != nil {
		return nil, nil, err
	}
	if wait := s.pods.spend(c.uid); wait > 0 {
		return nil, nil, tooOften(wait, "pod %s asks more than %v times a second", c.name, perPod.rate)
	}
	at, err := s.locate(ctx, c, address)
	return c, at, err
}

func (s *Server) sign(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	token, err := tokenOf(r)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, pki.RequestMax))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "reading the request: %v", err)
	}
	key, err := pki.ReadRequest(raw)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	c, at, err := s.admit(ctx, r, token)
	if err != nil {
		return nil, err
	}
	authority, err := s.Keys.Authority(s.Keys.ID(at.job.UID, at.attempt))
	if err != nil {
		return nil, err
	}
	s.issued.warn(s.Log, "certificate issued", "namespace", c.namespace, "pod", c.name, "number", at.number)
	return authority.Certify(key, int(at.number))
}
