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

// readable is the mode of the files of Secret and ConfigMap: nobody but their
// mounting container sees them, whatever user that runs as.
var readable int32 = 0o444

func volumes(s *Settings) []corev1.Volume {
	return []corev1.Volume{
		{Name: names.VolumeShared, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(sharedBytes, resource.BinarySI),
		}}},
		{Name: names.VolumeJob, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.ConfigMap}, DefaultMode: &readable,
		}}},
		{Name: names.VolumeTLS, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: s.Secret, DefaultMode: &readable,
		}}},
	}
}

func sharedMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: names.VolumeShared, MountPath: names.SharedDir}
}

// sidecarMounts shows the sidecar the job document and its own certificate;
// those of other pods stay out of its sight.
func sidecarMounts() []corev1.VolumeMount {
	file := func(name, path string) corev1.VolumeMount {
		return corev1.VolumeMount{Name: names.VolumeTLS, MountPath: names.TLSDir + "/" + name, SubPathExpr: path, ReadOnly: true}
	}
	return []corev1.VolumeMount{
		sharedMount(),
		{Name: names.VolumeJob, MountPath: names.JobDir, ReadOnly: true},
		file("ca.crt", names.SecretCA),
		file("tls.crt", podNumber+names.SecretCertSuffix),
		file("tls.key", podNumber+names.SecretKeySuffix),
	}
}
