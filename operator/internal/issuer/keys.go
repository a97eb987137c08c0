// Package issuer issues the certificates of sidecars. A sidecar makes its own key and
// sends a token that Kubernetes has issued to its pod; the issuer verifies the token,
// determines the pod, and signs a certificate for the pod's number in its job. It never
// stores or sends the private key of a sidecar. The package owns the certificate
// authorities of jobs, the verification of tokens, and the bounds on untrusted callers.
//
// Every replica of the operator serves, without coordination: the keys of all
// authorities are derived from one secret in the operator's own namespace.
package issuer

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// SecretName is the Secret with the seed, and SecretKey is its key in the Secret.
const (
	SecretName  = "outrigger-issuer"
	SecretKey   = "seed"
	secretBytes = 32
)

// certificateLife is longer than any job: sidecars check certificates at every
// connection, including connections after a break.
const certificateLife = 365 * 24 * time.Hour

// authoritiesMax bounds the cached authorities. An authority takes two signatures to
// make, and each pod of a job needs it.
const authoritiesMax = 1024

// Keys derives the authorities of all jobs from one secret.
type Keys struct {
	secret []byte

	mu   sync.Mutex
	made map[string]*pki.Authority // authorities made so far, by the identity of the attempt
}

// NewKeys returns the Keys of a secret.
func NewKeys(secret []byte) (*Keys, error) {
	if len(secret) < secretBytes {
		return nil, fmt.Errorf("issuer: the secret has %d bytes, want at least %d", len(secret), secretBytes)
	}
	return &Keys{secret: secret, made: map[string]*pki.Authority{}}, nil
}

// Load reads the secret. If there is none, it makes one for all replicas.
func Load(ctx context.Context, api client.Client, namespace string) (*Keys, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName}}
	key := client.ObjectKeyFromObject(s)
	err := api.Get(ctx, key, s)
	if apierrors.IsNotFound(err) {
		fresh := make([]byte, secretBytes)
		_, _ = rand.Read(fresh) // never fails (crypto/rand)
		yes := true
		s = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName, Labels: map[string]string{"app.kubernetes.io/part-of": "outrigger"}},
			Immutable:  &yes, Data: map[string][]byte{SecretKey: fresh},
		}
		if err = api.Create(ctx, s); apierrors.IsAlreadyExists(err) { // another replica has made it
			err = api.Get(ctx, key, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("issuer: Secret %s/%s: %w", namespace, SecretName, err)
	}
	return NewKeys(s.Data[SecretKey])
}

// derive returns 32 bytes that are derived from the secret for one purpose and name.
func (k *Keys) derive(purpose, name string) [ed25519.SeedSize]byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(purpose + "\x00" + name))
	return [ed25519.SeedSize]byte(h.Sum(nil))
}

// ID returns the identity of an attempt of an MPIJob.
func (k *Keys) ID(job types.UID, attempt int32) string {
	id := k.derive("id", string(job)+"/"+strconv.Itoa(int(attempt)))
	return hex.EncodeToString(id[:16])
}

// Authority returns the authority that signs for the sidecars of one attempt.
func (k *Keys) Authority(id string) (*pki.Authority, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.made[id]; a != nil {
		return a, nil
	}
	a, err := pki.FromSeed(id, k.derive("authority", id), certificateLife)
	if err != nil {
		return nil, err
	}
	if len(k.made) >= authoritiesMax {
		clear(k.made)
	}
	k.made[id] = a
	return a, nil
}

// endpoint returns the authority that signs for the issuers themselves.
func (k *Keys) endpoint() (*pki.Authority, error) {
	return pki.FromSeed("issuer", k.derive("endpoint", ""), certificateLife)
}

// CA returns the certificate by which sidecars verify an issuer, PEM.
func (k *Keys) CA() ([]byte, error) {
	a, err := k.endpoint()
	if err != nil {
		return nil, err
	}
	return a.CA(), nil
}
