// Package inject adds the sidecar to a pod. It owns the form of a pod with Outrigger:
// the containers, volumes, mounts and variables that are added, and the checks of pods
// that cannot get them. The operator uses it for the pods of MPIJobs, and the webhook
// for pods of other controllers.
//
// The application keeps its user, its image and its security context. It gets one
// mount, the directory with the sidecar's socket, and, if it uses an MPI, /dev/shm.
// Only the sidecar gets the devices, the token and the job document.
package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Settings are the settings for the pods of one job.
type Settings struct {
	Namespace  string            // namespace of the pods
	Container  string            // name of the application's container; empty: the only one
	Image      string            // image with outrigger-sidecar and outrigger-launch
	PullPolicy corev1.PullPolicy // empty: Kubernetes' default
	ConfigMap  string            // name of the ConfigMap with the job document
	Ranks      int32
	PerPod     int32
	Launch     v1alpha1.LaunchMode
	MPI        v1alpha1.MPI // empty: a program that is linked to an MPI is refused
	Devices    []v1alpha1.DeviceRequest
	Number     *int32 // number of the pod; nil: the Job sets the number of each pod
	Memory     memory.Sizes
	Resources  v1alpha1.SidecarResources // resources that the job or the operator sets for sidecars
	Wished     bool                      // the job itself sets the CPU request of its sidecars
	Bounds     Bounds                    // bounds of the namespace's LimitRanges
	Wait       string                    // OUTRIGGER_WAIT of the ranks; empty: their default
	Allocs     string                    // OUTRIGGER_MPI_ARENA of the ranks; empty: off
	SHM        *resource.Quantity        // size of /dev/shm of an MPI program; nil: as the pod's limits allow
	Stdin      string                    // file that rank 0 reads; empty: none
	Progress   string                    // OUTRIGGER_MPI_PROGRESS of the ranks; empty: the default
	LogLevel   string                    // empty: info
	User       *int64                    // user of sidecars if UIDs is empty; nil: UserDefault; 0: the platform chooses
	UIDs       UIDs                      // user ids of the namespace
	// LocalMetrics makes the sidecar serve metrics only within the pod.
	LocalMetrics bool
	// AllowedVariables and AllowedMounts are the names of variables and the paths of
	// mounts that other admission webhooks may add to the containers of Outrigger.
	AllowedVariables, AllowedMounts []string
}

// ErrPod is wrapped by all errors about a pod.
var ErrPod = errors.New("the pod cannot get a sidecar")

// Pod adds the sidecar to spec, in place. A pod that already has it is left unchanged,
// because the API server may call a webhook more than once. The rest of such a pod is
// checked too; otherwise, a pod with a copy of the sidecar would bypass the checks.
func Pod(spec *corev1.PodSpec, s *Settings) error {
	if has(spec) {
		return errors.Join(alike(spec, s), check(others(spec, s), s))
	}
	if err := check(spec, s); err != nil {
		return err
	}
	user := s.user(spec)
	spec.Volumes = append(spec.Volumes, volumes(s)...)
	if app := s.application(spec); s.givesSHM(app) {
		spec.Volumes = append(spec.Volumes, shmVolume(s))
		app.VolumeMounts = append(app.VolumeMounts, shmMount())
	}
	spec.InitContainers = append([]corev1.Container{install(s, user), sidecar(s, user)}, spec.InitContainers...)
	return application(s.application(spec), s, drainTime(Grace(spec)))
}

// Application returns the index of the application among a pod's containers: the
// container that the annotation names.AnnotationContainer names, or the one with the
// name in the MPIJob's template, or the only one. Other webhooks may add containers
// before or after the operator's webhook is called.
func Application(containers []corev1.Container, annotated, template string) (int, error) {
	find := func(name string) int {
		return slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	}
	if annotated != "" {
		if i := find(annotated); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("%w: its annotation %s is %q, and its containers are %s: name the application's", ErrPod, names.AnnotationContainer, annotated, listed(containers))
	}
	if i := find(template); i >= 0 {
		return i, nil
	}
	if len(containers) == 1 {
		return 0, nil
	}
	return 0, fmt.Errorf("%w: its containers are %s, and none has the name in the MPIJob's template, %q: name the application's by the annotation %s", ErrPod, listed(containers), template, names.AnnotationContainer)
}

// listedMax bounds the containers that an error lists.
const listedMax = 20

func listed(containers []corev1.Container) string {
	var all []string
	for i := range containers[:min(len(containers), listedMax)] {
		all = append(all, containers[i].Name)
	}
	if n := len(containers) - listedMax; n > 0 {
		all = append(all, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(all, ", ")
}

// application returns the application's container; nil if the pod does not have it.
func (s *Settings) application(spec *corev1.PodSpec) *corev1.Container {
	i := 0
	if s.Container != "" {
		i = slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == s.Container })
	}
	if i < 0 || len(spec.Containers) == 0 || s.Container == "" && len(spec.Containers) > 1 {
		return nil
	}
	return &spec.Containers[i]
}

// others returns a copy of a pod's spec without the parts that Outrigger added.
func others(spec *corev1.PodSpec, s *Settings) *corev1.PodSpec {
	rest := spec.DeepCopy()
	rest.Volumes = slices.DeleteFunc(rest.Volumes, func(v corev1.Volume) bool { return isReserved(v.Name) })
	rest.InitContainers = slices.DeleteFunc(rest.InitContainers, func(c corev1.Container) bool {
		return c.Name == names.ContainerSidecar || c.Name == names.ContainerInstall
	})
	for i := range rest.Containers {
		c := &rest.Containers[i]
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m == sharedMount() || m == shmMount() })
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return equality.Semantic.DeepEqual(e, podEnv(s)) })
	}
	return rest
}

// reserved are the names of the volumes that are added to every pod.
var reserved = []string{names.VolumeShared, names.VolumeJob, names.VolumeToken, names.VolumeNone}

// Reserved reports whether a name is that of a container or volume that is added to
// pods.
func Reserved(name string) bool {
	return name == names.ContainerSidecar || name == names.ContainerInstall || isReserved(name)
}

func isReserved(volume string) bool {
	return volume == names.VolumeSHM || slices.Contains(reserved, volume)
}

// check returns an error if names or mounts of the pod collide with the added ones.
func check(spec *corev1.PodSpec, s *Settings) error {
	app := s.application(spec)
	if app == nil {
		return fmt.Errorf("%w: its containers are %s, and none is known as the application's: name it by the annotation %s", ErrPod, listed(spec.Containers), names.AnnotationContainer)
	}
	if err := checkPod(spec); err != nil {
		return err
	}
	if err := checkNames(spec, s.Namespace); err != nil {
		return err
	}
	for i := range spec.Volumes {
		if err := checkVolume(&spec.Volumes[i]); err != nil {
			return err
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if err := checkContainer(&c); err != nil {
			return err
		}
	}
	// The policy of a container takes precedence over its pod's (Kubernetes 1.34 and
	// newer).
	if c := app; c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyNever || len(c.RestartPolicyRules) > 0 {
		return fmt.Errorf("%w: container %q has a restartPolicy or restartPolicyRules by which it is started again: its ranks could not join again; ranks are restarted all together, see runPolicy.restartLimit", ErrPod, c.Name)
	}
	for _, e := range app.Env {
		if e.Name == names.EnvPod {
			return fmt.Errorf("%w: container %q sets %s, which Outrigger sets", ErrPod, app.Name, names.EnvPod)
		}
	}
	return nil
}

// checkPod refuses settings that would show the sidecar's processes and memory, and so
// its key, to the application, or that would put the pod on another network than the
// one that the peers know. It also refuses pods in which the sidecar cannot run.
func checkPod(spec *corev1.PodSpec) error {
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return fmt.Errorf("%w: its os is windows, and the sidecar is a program of Linux, whose settings the API server refuses there: leave os out, or take linux", ErrPod)
	}
	for name, set := range map[string]bool{
		"hostPID": spec.HostPID, "hostIPC": spec.HostIPC, "hostNetwork": spec.HostNetwork,
		"shareProcessNamespace": spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace,
	} {
		if set {
			return fmt.Errorf("%w: it sets %s, by which the application could reach what is the sidecar's alone; leave it out", ErrPod, name)
		}
	}
	return nil
}

// checkNames refuses pods that cannot resolve the names of the other pods of their job,
// which are names of the cluster in the pod's namespace.
func checkNames(spec *corev1.PodSpec, namespace string) error {
	switch spec.DNSPolicy {
	case corev1.DNSDefault:
		return fmt.Errorf("%w: spec.dnsPolicy is Default, by which the node's name servers are asked, and those do not know the pods of the job: leave it out (ClusterFirst), or set None with a dnsConfig that knows the cluster's names", ErrPod)
	case corev1.DNSNone:
		entry := namespace + ".svc."
		if c := spec.DNSConfig; c == nil || len(c.Nameservers) == 0 || !slices.ContainsFunc(c.Searches, func(s string) bool { return strings.HasPrefix(s, entry) && len(s) > len(entry) }) {
			return fmt.Errorf("%w: spec.dnsPolicy is None, and spec.dnsConfig does not have both nameservers and the search entry %sDOMAIN, such as %scluster.local: the sidecars find each other by it", ErrPod, entry, entry)
		}
	case "", corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet:
	}
	return nil
}

// checkVolume refuses volumes that would give the sidecar's token to another container.
func checkVolume(v *corev1.Volume) error {
	if isReserved(v.Name) {
		return fmt.Errorf("%w: its volume %q has a name that Outrigger needs", ErrPod, v.Name)
	}
	if v.Projected == nil {
		return nil
	}
	for _, s := range v.Projected.Sources {
		if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == names.TokenAudience {
			return fmt.Errorf("%w: its volume %q asks for a token for %s, which only sidecars have", ErrPod, v.Name, names.TokenAudience)
		}
	}
	return nil
}

func checkContainer(c *corev1.Container) error {
	if c.Name == names.ContainerSidecar || c.Name == names.ContainerInstall {
		return fmt.Errorf("%w: its container %q has a name that Outrigger needs", ErrPod, c.Name)
	}
	for _, m := range c.VolumeMounts {
		if isReserved(m.Name) {
			return fmt.Errorf("%w: container %q mounts the volume %q, which is the sidecar's", ErrPod, c.Name, m.Name)
		}
		if covers(m.MountPath) {
			return fmt.Errorf("%w: container %q mounts %s: %s is where the sidecar's socket goes", ErrPod, c.Name, m.MountPath, names.SharedDir)
		}
	}
	for _, d := range c.VolumeDevices {
		if covers(d.DevicePath) {
			return fmt.Errorf("%w: container %q has the device %s: %s is where the sidecar's socket goes", ErrPod, c.Name, d.DevicePath, names.SharedDir)
		}
	}
	return nil
}

// covers reports whether a path in a container is the shared directory or below it.
func covers(at string) bool {
	at = mounted(at)
	return at == names.SharedDir || strings.HasPrefix(at, names.SharedDir+"/")
}
