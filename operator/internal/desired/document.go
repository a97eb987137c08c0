package desired

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// ConfigMap holds the job document.
func (a *Attempt) ConfigMap(id string) (*corev1.ConfigMap, error) {
	d := a.Document(id)
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("MPIJob %s/%s: %w", a.Job.Namespace, a.Job.Name, err)
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, err
	}
	yes := true
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: a.attemptMeta(), Immutable: &yes,
		Data: map[string]string{names.BootstrapFile: string(text)},
	}, nil
}

// Document is the job document of the attempt.
func (a *Attempt) Document(id string) *bootstrap.Document {
	s := &a.Job.Spec
	m := inject.MemoryOf(&s.Memory, &a.Profile)
	d := &bootstrap.Document{
		Version: bootstrap.Version,
		Job:     bootstrap.Job{Name: a.Job.Namespace + "/" + a.Job.Name, ID: id},
		Ranks:   int(s.Ranks),
		TLS: bootstrap.TLS{
			CAFile: names.TLSDir + "/ca.crt", CertFile: names.TLSDir + "/tls.crt", KeyFile: names.TLSDir + "/tls.key",
		},
		Memory: bootstrap.Memory{ArenaBytes: m.Arena, SlabBytes: m.Slab},
		Tuning: a.tuning(),
	}
	for i := range a.Pods() {
		first, count := Ranks(s, i)
		d.Pods = append(d.Pods, bootstrap.Pod{
			Name: fmt.Sprint(a.Name(), "-", i), Address: a.address(i), FirstRank: int(first), Ranks: int(count),
		})
	}
	return d
}

// The profile's words in the document's.
var (
	wait       = map[v1alpha1.WaitPolicy]string{"Poll": "poll", "Yield": "yield", "Block": "block"}
	rendezvous = map[v1alpha1.Rendezvous]string{"Get": "get", "Put": "put", "Stream": "stream"}
	encryption = map[v1alpha1.Encryption]string{v1alpha1.EncryptionTLS: bootstrap.EncryptTLS}
	transport  = map[v1alpha1.TransportType]string{v1alpha1.TransportTCP: bootstrap.TransportTCP}
	required   = map[v1alpha1.TransportType]bootstrap.Names{
		v1alpha1.TransportTCP: {bootstrap.TransportTCP}, v1alpha1.TransportRDMA: {bootstrap.TransportRDMA},
	}
)

// startWithin is how long sidecars wait for each other: pods of one job may be
// scheduled far apart, and whoever waits for a node must not fail the others.
const startWithin = 7 * 24 * time.Hour

func (a *Attempt) tuning() bootstrap.Tuning {
	p, t := &a.Profile, &a.Job.Spec.Transport
	var require bootstrap.Names
	if t.Policy == v1alpha1.TransportRequired {
		require = required[t.Type]
	}
	return bootstrap.Tuning{
		EagerBytes: bytes(p.EagerLimit), FragmentBytes: bytes(p.Fragment), CreditBytes: bytes(p.Credit),
		Heartbeat: milliseconds(p.HeartbeatMilliseconds), DeadAfter: milliseconds(p.DeadAfterMilliseconds),
		StartWithin: bootstrap.Duration(startWithin), Transport: transport[t.Type], Require: require, Rendezvous: rendezvous[p.Rendezvous],
		Wait: wait[p.WaitPolicy], Encrypt: encryption[p.Encryption],
	}
}

func bytes(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

func milliseconds(n *int32) bootstrap.Duration {
	if n == nil {
		return 0
	}
	return bootstrap.Duration(time.Duration(*n) * time.Millisecond)
}
