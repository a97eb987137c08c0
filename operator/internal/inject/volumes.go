package inject

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// sharedBytes bounds the shared directory, which holds sockets and the launcher.
// Messages are not in it: segments are anonymous memory, passed over the socket.
const sharedBytes = 64 << 20

// tokenSeconds is the lifetime of a sidecar's token, the minimum of Kubernetes. The
// token is used when the sidecar starts, and the kubelet renews it.
const tokenSeconds = 600

// accountDir is where Kubernetes mounts the token of the pod's service account into
// every container without another mount there.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a directory

// readable is the mode of the job document and the token. Only the container that
// mounts them sees them, whatever user it runs as.
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

// shmDir is where MPIs keep the memory that the ranks of a pod share. A container
// runtime provides 64 MiB there, and a process that touches more gets SIGBUS.
const shmDir = "/dev/shm"

// givesSHM reports whether the application gets a volume at /dev/shm: it does if it
// uses an MPI and its container mounts none.
func (s *Settings) givesSHM(app *corev1.Container) bool {
	return app != nil && s.MPI.Used() && !slices.ContainsFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool {
		return mounted(m.MountPath) == shmDir
	})
}

// mounted returns where the kubelet mounts a path: a relative path is taken from the
// root.
func mounted(at string) string { return path.Join("/", at) }

// shmVolume returns a memory volume, which is charged to the containers that write to
// it. Without a size limit, the kubelet sizes it by the limits of the pod's containers.
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

// noToken returns a mount that hides the token of the pod's service account from a
// container.
func noToken() corev1.VolumeMount {
	return corev1.VolumeMount{Name: names.VolumeNone, MountPath: accountDir, ReadOnly: true}
}

// sidecarMounts returns the mounts of the sidecar, with the job document and its own
// token.
func sidecarMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		sharedMount(),
		{Name: names.VolumeJob, MountPath: names.JobDir, ReadOnly: true},
		{Name: names.VolumeToken, MountPath: names.TokenDir, ReadOnly: true},
		noToken(),
	}
}
