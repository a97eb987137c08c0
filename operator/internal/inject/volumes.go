package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// sharedBytes bounds the shared directory, which holds sockets and the
// launcher. Messages are not in it: segments are anonymous memory, passed over
// the socket.
const sharedBytes = 64 << 20

// tokenSeconds is how long a sidecar's token is good, the least that Kubernetes
// gives: it is used once, when the sidecar starts, and made anew by the kubelet.
const tokenSeconds = 600

// accountDir is where Kubernetes mounts the token of the pod's service account
// into every container that has nothing there.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a directory

// readable is the mode of the job document and the token: nobody but their
// mounting container sees them, whatever user that runs as.
var readable int32 = 0o444

func volumes(s *Settings) []corev1.Volume {
	seconds := int64(tokenSeconds)
	return []corev1.Volume{
		{Name: names.VolumeShared, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(sharedBytes, resource.BinarySI),
		}}},
		{Name: names.VolumeJob, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.ConfigMap}, DefaultMode: &readable,
		}}},
		{Name: names.VolumeToken, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: &readable,
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: names.TokenAudience, ExpirationSeconds: &seconds, Path: names.TokenFile,
			}}},
		}}},
		{Name: names.VolumeNone, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
}

func sharedMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: names.VolumeShared, MountPath: names.SharedDir}
}

// noToken keeps the token of the pod's service account out of a container.
func noToken() corev1.VolumeMount {
	return corev1.VolumeMount{Name: names.VolumeNone, MountPath: accountDir, ReadOnly: true}
}

// sidecarMounts shows the sidecar the job document and its own token.
func sidecarMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		sharedMount(),
		{Name: names.VolumeJob, MountPath: names.JobDir, ReadOnly: true},
		{Name: names.VolumeToken, MountPath: names.TokenDir, ReadOnly: true},
		noToken(),
	}
}
