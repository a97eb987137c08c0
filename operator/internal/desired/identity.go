package desired

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Identity is what only the sidecars of one attempt share. It is made once an
// attempt, so that what is left of an earlier one is a stranger.
type Identity struct {
	ID     string // not guessable
	CA     []byte // PEM
	Leaves []Leaf // one a pod
}

// Leaf is one sidecar's certificate and key, PEM.
type Leaf struct{ Cert, Key []byte }

// Secret holds the attempt's certificates. Each sidecar mounts its own alone.
func (a *Attempt) Secret(id *Identity) *corev1.Secret {
	yes := true
	data := map[string][]byte{names.SecretCA: id.CA, secretID: []byte(id.ID)}
	for i, leaf := range id.Leaves {
		data[fmt.Sprint(i, names.SecretCertSuffix)] = leaf.Cert
		data[fmt.Sprint(i, names.SecretKeySuffix)] = leaf.Key
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: a.attemptMeta(), Immutable: &yes, Type: corev1.SecretTypeOpaque, Data: data,
	}
}

// secretID is the attempt's id, kept with its certificates, which name it.
const secretID = "job-id"

// IDOf reads the attempt's id from its Secret.
func IDOf(s *corev1.Secret) string { return string(s.Data[secretID]) }
