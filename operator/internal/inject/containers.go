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

// programDir holds the programs of our images.
const programDir = "/usr/local/bin"

// The programs of the sidecar's image, and the launcher where it is installed.
const (
	programSidecar = programDir + "/outrigger-sidecar"
	programLaunch  = programDir + "/outrigger-launch"
	installDir     = names.SharedDir + "/bin"
	launcher       = installDir + "/outrigger-launch"
	socket         = names.SharedDir + "/" + names.SocketFile
	startedFile    = names.SharedDir + "/started"
)

// podNumber is the pod's number in arguments and paths; the kubelet puts it in.
const podNumber = "$(" + names.EnvPod + ")"

// indexField is where Jobs tell each pod its number.
const indexField = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

// podEnv is the variable behind podNumber. It comes first, since a variable
// sees only those before it.
func podEnv(s *Settings) corev1.EnvVar {
	if s.Number != nil {
		return corev1.EnvVar{Name: names.EnvPod, Value: strconv.Itoa(int(*s.Number))}
	}
	return corev1.EnvVar{Name: names.EnvPod, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: indexField},
	}}
}

// cpu is what a sidecar asks the scheduler for when nobody says more. There is
// no limit then: a throttled engine would hold up every rank of the job.
var cpu = resource.MustParse("250m")

// installCPU is what the init container requests when nothing is said: it runs for a
// moment, and has no limit.
var installCPU = resource.MustParse("10m")

// restricted is the security context of Pod Security's level of that name, for a user; 0:
// one that the platform chooses.
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

// install copies the launcher to where the application can run it.
func install(s *Settings, user int64) corev1.Container {
	return corev1.Container{
		Name: names.ContainerInstall, Image: s.Image, ImagePullPolicy: s.PullPolicy,
		Command:         []string{programLaunch, "install", installDir},
		Resources:       installResources(s),
		VolumeMounts:    []corev1.VolumeMount{sharedMount(), noToken()},
		SecurityContext: restricted(user),
	}
}

// installResources are those of the init container. Memory, and CPU where values or the job
// speak of it, are the sidecar's: the scheduler counts the larger of this and of what runs
// later, so that they cost nothing, and what bounds containers and lets the sidecar in lets
// this one in too. Its limits are its requests where the sidecar has one of CPU: or no pod
// could be Guaranteed.
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

// sidecar is a native sidecar: an init container that stays, so that it is
// there before the application and goes after it.
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
		// A sidecar is alive before it is ready, for which it may wait for any length of time:
		// the issuer may be away. The application's launcher waits, too.
		StartupProbe: &corev1.Probe{
			ProbeHandler:        asks("/healthz"),
			InitialDelaySeconds: startDelay, PeriodSeconds: 1, FailureThreshold: startFailures, TimeoutSeconds: 1,
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  asks("/readyz?started"), // the answer waits for it (obs.Starting)
			PeriodSeconds: 10, FailureThreshold: readyFailures, TimeoutSeconds: 10,
		},
	}
}

// startDelay is when a sidecar is asked first. Each probe that fails is a warning among the pod's
// events, and a kubelet, which counts the container's start in whole seconds, may ask at the very
// moment of it. 2 of its seconds are at least one.
const startDelay = 2

// How many probes may fail, one after another.
const (
	startFailures = 600       // 10 minutes of a node that has too much to do to start a program
	readyFailures = 1_000_000 // 57 days: a sidecar that has been ready stays so, whether its node is busy or not
)

func asks(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("metrics")}}
}

// metrics is where a sidecar serves what ranks do: on the pod's loopback it is
// reached by kubectl port-forward, for which Kubernetes asks who may.
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

// atLeast is the larger of two quantities.
func atLeast(least, wish resource.Quantity) resource.Quantity {
	if wish.Cmp(least) > 0 {
		return wish
	}
	return least
}

// application puts the launcher before the container's command, or tells a
// container that is itself a rank which one.
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

// graceDefault is a pod's terminationGracePeriodSeconds when its template leaves it out.
const graceDefault = 30

// Grace is how long a pod's containers have between SIGTERM and SIGKILL.
func Grace(spec *corev1.PodSpec) time.Duration {
	seconds := int64(graceDefault)
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		seconds = max(0, min(*s, math.MaxInt32))
	}
	return time.Duration(seconds) * time.Second
}

// leaveTime is what of a pod's grace is left to its launcher, which kills the ranks and
// leaves its last words, and to its sidecar, which leaves last.
const leaveTime = 2 * time.Second

// drainTime is what of a pod's grace the ranks have: all but leaveTime, at least half of
// it, and more than nothing.
func drainTime(grace time.Duration) time.Duration {
	return max(grace-leaveTime, grace/2, time.Second/2)
}

// launchFlags tell the launcher what a job asks of it that most do not.
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

// withEnv sets a variable that has a value and that the template has not set itself.
func withEnv(env []corev1.EnvVar, name, value string) []corev1.EnvVar {
	if value == "" || slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == name }) {
		return env
	}
	return append(env, corev1.EnvVar{Name: name, Value: value})
}
