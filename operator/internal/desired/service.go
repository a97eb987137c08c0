package desired

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// Service returns a headless Service, which only gives names to the pods of every
// attempt. The names exist before the pods are ready, since sidecars have to dial each
// other to become ready.
func (a *Attempt) Service() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: a.meta(a.peers()),
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{names.LabelJob: a.Job.Name},
			Ports:    []corev1.ServicePort{{Name: "peers", Port: names.PortPeers, TargetPort: intstr.FromString("peers"), Protocol: corev1.ProtocolTCP}},
		},
	}
}
