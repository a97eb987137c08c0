package inject

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// programDir is the directory of the programs in Outrigger's images.
const programDir = "/usr/local/bin"

// Paths of the programs in the sidecar's image, and of the installed launcher.
const (
	programSidecar = programDir + "/outrigger-sidecar"
	programLaunch  = programDir + "/outrigger-launch"
	installDir     = names.SharedDir + "/bin"
	launcher       = installDir + "/outrigger-launch"
	socket         = names.SharedDir + "/" + names.SocketFile
	startedFile    = names.SharedDir + "/started"
)

// podNumber is the pod's number in arguments and paths. The kubelet expands it.
const podNumber = "$(" + names.EnvPod + ")"

// indexField is the field in which Jobs store the number of each pod.
const indexField = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

// podEnv returns the variable that podNumber refers to. It has to come first, since a
// variable can only refer to earlier ones.
func podEnv(s *Settings) corev1.EnvVar {
	if s.Number != nil {
		return corev1.EnvVar{Name: names.EnvPod, Value: strconv.Itoa(int(*s.Number))}
	}
	return corev1.EnvVar{Name: names.EnvPod, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: indexField},
	}}
}

// cpu is the default CPU request of a sidecar. There is no default limit: a throttled
// engine would hold up every rank of the job.
var cpu = resource.MustParse("250m")

// installCPU is the default CPU request of the init container. It runs for a moment,
// and has no limit.
var installCPU = resource.MustParse("10m")

// restricted returns the security context of the level "restricted" of Pod Security,
// for a user id; 0: the platform chooses the user.
func restricted(user int64) *corev1.SecurityContext {
	no, yes := false, true
	c := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsNonRoot: &yes,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if user != 0 {
		c.RunAsUser, c.RunAsGroup = &user, &user
	}
	return c
}

// install returns the init container that copies the launcher to the shared directory.
func install(s *Settings, user int64) corev1.Container {
	return corev1.Container{
		Name: names.ContainerInstall, Image: s.Image, ImagePullPolicy: s.PullPolicy,
		Command:         []string{programLaunch, "install", installDir},
		Resources:       installResources(s),
		VolumeMounts:    []corev1.VolumeMount{sharedMount(), noToken()},
		SecurityContext: restricted(user),
	}
}

// installResources returns the resources of the init container. Its memory, and its CPU
// if the job or the operator sets it, are those of the sidecar. This costs nothing,
// since the scheduler counts the maximum of this container and of those that run later,
// and a LimitRange that admits the sidecar then also admits this container. If the
// sidecar has a CPU limit, the limits equal the requests; otherwise no pod could have
// the QoS class Guaranteed.
func installResources(s *Settings) corev1.ResourceRequirements {
	of := resources(s)
	requests := corev1.ResourceList{corev1.ResourceCPU: of.Requests[corev1.ResourceCPU], corev1.ResourceMemory: of.Requests[corev1.ResourceMemory]}
	limits := requests.DeepCopy()
	if _, limited := of.Limits[corev1.ResourceCPU]; !limited {
		delete(limits, corev1.ResourceCPU)
		if _, said := s.Resources.Requests[corev1.ResourceCPU]; !said {
			requests[corev1.ResourceCPU] = s.Bounds.request(installCPU)
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// sidecar returns the native sidecar: an init container that keeps running, so that it
// starts before the application and ends after it.
func sidecar(s *Settings, user int64) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	args := []string{
		"--pod=" + podNumber, "--bootstrap=" + names.JobDir + "/" + names.BootstrapFile, "--socket=" + socket,
		"--listen=:" + strconv.Itoa(names.PortPeers), s.metrics(),
		"--app-uid=any", "--once=" + startedFile, "--termination-log=" + corev1.TerminationMessagePathDefault,
	}
	if s.LocalMetrics {
		args = append(args, "--health=:"+strconv.Itoa(names.PortMetrics))
	}
	if s.LogLevel != "" {
		args = append(args, "--log-level="+s.LogLevel)
	}
	if s.MPI == "" || s.MPI == v1alpha1.MPINone {
		args = append(args, "--no-pmi")
	}
	return corev1.Container{
		Name: names.ContainerSidecar, Image: s.Image, ImagePullPolicy: s.PullPolicy, RestartPolicy: &always,
		Command: []string{programSidecar}, Args: args, Env: []corev1.EnvVar{podEnv(s)},
		Ports: []corev1.ContainerPort{
			{Name: "peers", ContainerPort: names.PortPeers, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: names.PortMetrics, Protocol: corev1.ProtocolTCP},
		},
		Resources:       resources(s),
		VolumeMounts:    sidecarMounts(),
		SecurityContext: restricted(user),
		// A sidecar is alive before it is ready. It may wait for readiness for any
		// time, since the issuer may be unavailable; the application's launcher waits
		// for it.
		StartupProbe: &corev1.Probe{
			ProbeHandler:        asks("/healthz"),
			InitialDelaySeconds: startDelay, PeriodSeconds: 1, FailureThreshold: startFailures, TimeoutSeconds: 1,
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  asks("/readyz?started"), // the request waits until the sidecar is ready (obs.Starting)
			PeriodSeconds: 10, FailureThreshold: readyFailures, TimeoutSeconds: 10,
		},
	}
}

// startDelay is the time of the first probe, in seconds. Each failed probe causes a
// warning in the pod's events. A kubelet counts the container's start in whole seconds,
// so that a delay of 1 may be none; a delay of 2 is at least one second.
const startDelay = 2

// Consecutive failures of probes that are allowed.
const (
	startFailures = 600       // 10 minutes, for a node that is too busy to start a program
	readyFailures = 1_000_000 // 115 days at one probe per 10 s: a busy node does not make a ready sidecar unready
)

func asks(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("metrics")}}
}

// metrics returns the flag for the address of a sidecar's metrics. On the pod's
// loopback address, clients reach it by kubectl port-forward, which Kubernetes
// authorizes.
func (s *Settings) metrics() string {
	if s.LocalMetrics {
		return "--metrics=127.0.0.1:" + strconv.Itoa(names.PortMetricsLocal)
	}
	return "--metrics=:" + strconv.Itoa(names.PortMetrics)
}

func resources(s *Settings) corev1.ResourceRequirements {
	pods := (s.Ranks + s.PerPod - 1) / s.PerPod
	need := *resource.NewQuantity(s.Memory.Need(int(min(s.PerPod, s.Ranks)), int(s.Ranks), int(pods)), resource.BinarySI)
	memory := atLeast(atLeast(need, s.Bounds.Least[corev1.ResourceMemory]), s.Resources.Requests[corev1.ResourceMemory])
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: atLeast(memory, s.Resources.Limits[corev1.ResourceMemory])},
	}
	limit, limited := s.Resources.Limits[corev1.ResourceCPU]
	if limited {
		r.Limits[corev1.ResourceCPU], r.Requests[corev1.ResourceCPU] = limit, limit
	}
	if request, ok := s.Resources.Requests[corev1.ResourceCPU]; ok {
		r.Requests[corev1.ResourceCPU] = request
	}
	if !limited && !s.Wished {
		r.Requests[corev1.ResourceCPU] = s.Bounds.request(r.Requests[corev1.ResourceCPU])
	}
	for _, d := range s.Devices {
		count := *resource.NewQuantity(int64(d.Count), resource.DecimalSI)
		r.Requests[corev1.ResourceName(d.Resource)] = count
		r.Limits[corev1.ResourceName(d.Resource)] = count
	}
	return r
}

// atLeast returns the larger of two quantities.
func atLeast(least, wish resource.Quantity) resource.Quantity {
	if wish.Cmp(least) > 0 {
		return wish
	}
	return least
}

// application puts the launcher before the container's command. If the container itself
// is a rank, it sets the variables with the socket and the rank.
func application(c *corev1.Container, s *Settings, drain time.Duration) error {
	c.VolumeMounts = append(c.VolumeMounts, sharedMount())
	c.Env = append([]corev1.EnvVar{podEnv(s)}, c.Env...)
	c.Env = withEnv(c.Env, names.EnvWait, s.Wait)
	c.Env = withEnv(c.Env, names.EnvMPIArena, s.Allocs)
	c.Env = withEnv(c.Env, names.EnvMPIProgress, s.Progress)
	if s.Launch == v1alpha1.LaunchContainer {
		c.Env = withEnv(c.Env, names.EnvSocket, socket)
		c.Env = withEnv(c.Env, names.EnvRank, podNumber)
		return nil
	}
	if len(c.Command) == 0 {
		return fmt.Errorf("%w: container %q has no command, and the launcher cannot know its image's entry point", ErrPod, c.Name)
	}
	message := c.TerminationMessagePath
	if message == "" {
		message = corev1.TerminationMessagePathDefault
	}
	program := slices.Concat(c.Command, c.Args)
	c.Command = []string{launcher}
	c.Args = slices.Concat([]string{
		"--socket=" + socket, "--pod=" + podNumber, "--ranks-per-pod=" + strconv.Itoa(int(s.PerPod)),
		"--world=" + strconv.Itoa(int(s.Ranks)), "--prefix", "--termination-log=" + message, "--grace=" + drain.String(),
	}, s.launchFlags(), []string{"--"}, program)
	return nil
}

// graceDefault is the default of a pod's terminationGracePeriodSeconds.
const graceDefault = 30

// Grace returns the time between SIGTERM and SIGKILL of a pod's containers.
func Grace(spec *corev1.PodSpec) time.Duration {
	seconds := int64(graceDefault)
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		seconds = max(0, min(*s, math.MaxInt32))
	}
	return time.Duration(seconds) * time.Second
}

// leaveTime is the part of a pod's grace period that is reserved for its launcher,
// which kills the ranks and writes its termination message, and for its sidecar, which
// ends last.
const leaveTime = 2 * time.Second

// drainTime returns the part of a pod's grace period that the ranks have: all but
// leaveTime, at least half of it, and at least half a second.
func drainTime(grace time.Duration) time.Duration {
	return max(grace-leaveTime, grace/2, time.Second/2)
}

// launchFlags returns the launcher's flags for optional settings of a job.
func (s *Settings) launchFlags() []string {
	var flags []string
	if s.MPI != "" {
		flags = append(flags, "--mpi="+strings.ToLower(string(s.MPI)))
	}
	if s.Stdin != "" {
		flags = append(flags, "--stdin="+s.Stdin)
	}
	return flags
}

// withEnv sets a variable if value is not empty and the template does not set it.
func withEnv(env []corev1.EnvVar, name, value string) []corev1.EnvVar {
	if value == "" || slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == name }) {
		return env
	}
	return append(env, corev1.EnvVar{Name: name, Value: value})
}
