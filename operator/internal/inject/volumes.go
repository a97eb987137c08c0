package inject

import (
	"path"
	"slices"

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

// shmDir is where MPIs keep what the ranks of a pod share. A container runtime gives 64 MiB
// there, and a process that touches more than there is ends by SIGBUS.
const shmDir = "/dev/shm"

// givesSHM reports whether the application gets a /dev/shm: an MPI program does whose
// container mounts none itself.
func (s *Settings) givesSHM(app *corev1.Container) bool {
	return app != nil && s.MPI.Used() && !slices.ContainsFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool {
		return mounted(m.MountPath) == shmDir
	})
}

// mounted is where the kubelet mounts what has a path: a path that does not begin at the root
// counts from there.
func mounted(at string) string { return path.Join("/", at) }

// shmVolume is memory of the containers that write to it. Without a limit of its own the
// kubelet sizes it by those of the pod's containers.
func shmVolume(s *Settings) corev1.Volume {
	return corev1.Volume{Name: names.VolumeSHM, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: s.SHM,
	}}}
}

func shmMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: names.VolumeSHM, MountPath: shmDir}
}

func hasSHM(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == names.VolumeSHM })
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
