// Package issuer gives sidecars their certificates. A sidecar makes its key
// itself and shows a token that Kubernetes has given to its pod alone; the issuer
// has the token reviewed, finds out whose pod it is, and signs for that place in
// that job. No private key is ever kept or sent.
//
// Every replica of the operator serves, without an agreement: the keys of all
// authorities are functions of one secret, which is in the operator's own
// namespace.
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

// SecretName is the Secret with the secret, SecretKey its place there.
const (
	SecretName  = "outrigger-issuer"
	SecretKey   = "seed"
	secretBytes = 32
)

// certificateLife is longer than any job: sidecars check certificates when they
// connect, and may connect again after a break.
const certificateLife = 365 * 24 * time.Hour

// authoritiesMax bounds the authorities that are kept. Making one takes two
// signatures, and each pod of a job needs it.
const authoritiesMax = 1024

// Keys makes the authorities of all jobs from one secret.
type Keys struct {
	secret []byte

	mu   sync.Mutex
	made map[string]*pki.Authority // by the attempt's identity
}

// NewKeys takes the secret.
func NewKeys(secret []byte) (*Keys, error) {
	if len(secret) < secretBytes {
		return nil, fmt.Errorf("issuer: the secret has %d bytes, want at least %d", len(secret), secretBytes)
	}
	return &Keys{secret: secret, made: map[string]*pki.Authority{}}, nil
}

// Load reads the secret, or makes it, once for all replicas.
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
		if err = api.Create(ctx, s); apierrors.IsAlreadyExists(err) { // another replica was first
			err = api.Get(ctx, key, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("issuer: Secret %s/%s: %w", namespace, SecretName, err)
	}
	return NewKeys(s.Data[SecretKey])
}

// derive makes 32 bytes of the secret for one purpose.
func (k *Keys) derive(purpose, name string) [ed25519.SeedSize]byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(purpose + "\x00" + name))
	return [ed25519.SeedSize]byte(h.Sum(nil))
}

// ID is the identity of an attempt of an MPIJob.
func (k *Keys) ID(job types.UID, attempt int32) string {
	id := k.derive("id", string(job)+"/"+strconv.Itoa(int(attempt)))
	return hex.EncodeToString(id[:16])
}

// Authority signs for the sidecars of one attempt.
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

// endpoint signs for the issuers themselves.
func (k *Keys) endpoint() (*pki.Authority, error) {
	return pki.FromSeed("issuer", k.derive("endpoint", ""), certificateLife)
}

// CA is the certificate by which sidecars know an issuer, PEM.
func (k *Keys) CA() ([]byte, error) {
	a, err := k.endpoint()
	if err != nil {
		return nil, err
	}
	return a.CA(), nil
}
