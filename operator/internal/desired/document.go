package desired

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// ConfigMap returns the object with the job document. The document describes the pods
// by a pattern, because each of thousands of sidecars reads the whole document.
func (a *Attempt) ConfigMap(id *Identity) (*corev1.ConfigMap, error) {
	d := a.Document(id.ID)
	issuer := id.Issuer
	if issuer.AddressesURL = ""; !a.Named() {
		issuer.AddressesURL = addressesURL(issuer.URL)
	}
	d.TLS = bootstrap.TLS{CA: string(id.CA), Issuer: &issuer}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("MPIJob %s/%s: %w", a.Job.Namespace, a.Job.Name, err)
	}
	d.Pods, d.Pattern = nil, a.doc().Pattern()
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, err
	}
	yes, meta := true, a.attemptMeta()
	meta.Name = a.DocumentName()
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta, Immutable: &yes,
		Data: map[string]string{names.BootstrapFile: string(text)},
	}, nil
}

// Names reports whether the job document in a ConfigMap has the identity id. The
// document may be of a later release: a job keeps the document that it has.
func Names(c *corev1.ConfigMap, id string) bool {
	d, err := bootstrap.Look([]byte(c.Data[names.BootstrapFile]))
	return err == nil && d.Job.ID == id
}

// addressesURL returns the URL at which an issuer returns the addresses of pods, given
// its URL for certificates: https://HOST/v1/addresses for https://HOST/v1/certificate.
func addressesURL(certificates string) string {
	return certificates[:strings.LastIndexByte(certificates, '/')+1] + "addresses"
}

// PeersOf returns the name of the Service by which the pods of a job document find each
// other, or ByIssuer. An attempt keeps it even if an operator of another release
// continues it. The result is empty if the document has no such names.
func PeersOf(c *corev1.ConfigMap) string {
	d, err := bootstrap.Look([]byte(c.Data[names.BootstrapFile]))
	if err != nil {
		return ""
	}
	if d.TLS.Issuer != nil && d.TLS.Issuer.AddressesURL != "" {
		return ByIssuer
	}
	host, _, _ := strings.Cut(d.Pods[0].Address, ":")
	labels := strings.Split(host, ".") // POD.SERVICE.NAMESPACE.svc
	if len(labels) != 4 || labels[2] != c.Namespace || labels[3] != "svc" {
		return ""
	}
	return labels[1]
}

// Document returns the job document of the attempt.
func (a *Attempt) Document(id string) *bootstrap.Document { return a.doc().Document(id) }

func (a *Attempt) doc() *jobdoc.Attempt {
	d := &jobdoc.Attempt{Job: a.Job, Profile: a.Profile, Number: a.Number, Issued: !a.Named()}
	if !d.Issued {
		d.Service = a.peers()
	}
	return d
}
