package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MPIJob is one run of a parallel program: ranks in pods, each pod with a
// sidecar that carries its messages.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mj,categories=all
// +kubebuilder:printcolumn:name="Ranks",type=integer,JSONPath=`.spec.ranks`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.status=="True")].type`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.status=="True")].reason`
// +kubebuilder:printcolumn:name="Failed Rank",type=integer,JSONPath=`.status.firstFailure.rank`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.ranks.running`
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.ranks.succeeded`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Transport",type=string,JSONPath=`.status.transports[0]`
// +kubebuilder:printcolumn:name="Failure",type=string,JSONPath=`.status.firstFailure.message`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.status=="True")].message`,priority=1
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.firstFailure.node`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && !self.metadata.name.contains('.') && !self.metadata.name.matches('^[0-9]')",message="the name becomes that of a Service and part of host names: at most 40 characters, no dots, a letter first"
type MPIJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is the desired job.
	// +required
	Spec MPIJobSpec `json:"spec,omitzero"`
	// status is the observed state of the job.
	// +optional
	Status MPIJobStatus `json:"status,omitzero"`
}

// MPIJobList is a list of MPIJobs.
//
// +kubebuilder:object:root=true
type MPIJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MPIJob `json:"items"`
}

// LaunchMode says how ranks are started.
//
// +kubebuilder:validation:Enum=Processes;Container
type LaunchMode string

const (
	// LaunchProcesses starts the container's command once for each rank, by a
	// launcher that passes on signals and output.
	LaunchProcesses LaunchMode = "Processes"
	// LaunchContainer leaves the container as it is: it is one rank, and its
	// entry point may be the image's.
	LaunchContainer LaunchMode = "Container"
)

// MPI is a kind of MPI library.
//
// +kubebuilder:validation:Enum=Auto;MPICH;Intel;OpenMPI;None
type MPI string

// Kinds of MPI.
const (
	// MPIAuto is the MPI that the program is linked to.
	MPIAuto    MPI = "Auto"
	MPIMPICH   MPI = "MPICH"
	MPIIntel   MPI = "Intel"
	MPIOpenMPI MPI = "OpenMPI"
	// MPINone is for programs of Outrigger's client library, and for MPI programs of
	// which each rank is to run as a job of its own.
	MPINone MPI = "None"
)

// Used reports whether the job has a program of an MPI: not with None or an absent field.
func (m MPI) Used() bool { return m != "" && m != MPINone }

// MPIProgress is the work that continues while an MPI program computes.
//
// +kubebuilder:validation:Enum=Off;Messages;All
type MPIProgress string

// Values of MPIProgress.
const (
	// MPIProgressOff is the work of the sidecar alone.
	MPIProgressOff MPIProgress = "Off"
	// MPIProgressMessages adds copies in the program, and accesses of other ranks to
	// its windows.
	MPIProgressMessages MPIProgress = "Messages"
	// MPIProgressAll adds the MPI's own steps, such as those of collectives.
	MPIProgressAll MPIProgress = "All"
)

// PodManagement says who makes the job's pods.
//
// +kubebuilder:validation:Enum=Managed;External
type PodManagement string

const (
	// PodsManaged are made by the operator, as an Indexed Job.
	PodsManaged PodManagement = "Managed"
	// PodsExternal are made by another controller. Those with the labels
	// outrigger.dev/inject and outrigger.dev/job-name get their sidecar from the
	// operator's webhook, and are counted in the status.
	PodsExternal PodManagement = "External"
)

// MPIJobSpec is the desired job. Except for runPolicy it cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self.ranksPerPod < 1 || (self.ranks + self.ranksPerPod - 1) / self.ranksPerPod <= 4096",fieldPath=".ranksPerPod",message="over 4096 pods: raise ranksPerPod"
// +kubebuilder:validation:XValidation:rule="self.launchMode != 'Container' || self.ranksPerPod == 1",fieldPath=".ranksPerPod",message="launchMode Container makes a container one rank: ranksPerPod must be 1"
// +kubebuilder:validation:XValidation:rule="self.launchMode != 'Container' || !has(self.mpi) || self.mpi == 'None'",message="mpi needs launchMode Processes: the launcher gives ranks what their MPI needs"
// +kubebuilder:validation:XValidation:rule="self.ranks == oldSelf.ranks && self.ranksPerPod == oldSelf.ranksPerPod && self.launchMode == oldSelf.launchMode",fieldPath=".ranks",message="ranks, ranksPerPod and launchMode cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",fieldPath=".managedBy",message="managedBy cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.devices) == has(oldSelf.devices)",fieldPath=".devices",message="devices cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.profileName) == has(oldSelf.profileName)",fieldPath=".profileName",message="profileName cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.sidecar) == has(oldSelf.sidecar)",fieldPath=".sidecar",message="sidecar cannot be changed"
// +kubebuilder:validation:XValidation:rule="(has(self.memory) && has(self.memory.arena)) == (has(oldSelf.memory) && has(oldSelf.memory.arena)) && (has(self.memory) && has(self.memory.slab)) == (has(oldSelf.memory) && has(oldSelf.memory.slab)) && (has(self.memory) && has(self.memory.allocationsFrom)) == (has(oldSelf.memory) && has(oldSelf.memory.allocationsFrom)) && (has(self.memory) && has(self.memory.shm)) == (has(oldSelf.memory) && has(oldSelf.memory.shm))",fieldPath=".memory",message="memory cannot be changed"
// +kubebuilder:validation:XValidation:rule="(has(self.mpi) ? self.mpi : 'None') == (has(oldSelf.mpi) ? oldSelf.mpi : 'None')",fieldPath=".mpi",message="mpi cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.stdinFile) == has(oldSelf.stdinFile)",fieldPath=".stdinFile",message="stdinFile cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(self.stdinFile) || self.launchMode != 'Container'",fieldPath=".stdinFile",message="stdinFile needs launchMode Processes: the launcher opens it"
// +kubebuilder:validation:XValidation:rule="(has(self.runPolicy) && has(self.runPolicy.gang) ? self.runPolicy.gang : 'None') == (has(oldSelf.runPolicy) && has(oldSelf.runPolicy.gang) ? oldSelf.runPolicy.gang : 'None')",fieldPath=".runPolicy",message="runPolicy.gang cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.mpiProgress) == has(oldSelf.mpiProgress)",message="mpiProgress cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(self.mpiProgress) || has(self.mpi) && self.mpi != 'None'",message="mpiProgress is for programs of an MPI: set mpi, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.memory.allocationsFrom) || has(self.mpi) && self.mpi != 'None'",message="memory.allocationsFrom is for programs of an MPI: set mpi, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.memory.shm) || has(self.mpi) && self.mpi != 'None'",fieldPath=".memory.shm",message="memory.shm is for programs of an MPI: set mpi, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.memory.shm) || size(self.template.spec.containers) == 0 || !has(self.template.spec.containers[0].volumeMounts) || !self.template.spec.containers[0].volumeMounts.exists(m, m.mountPath == '/dev/shm' || m.mountPath == '/dev/shm/')",fieldPath=".memory.shm",message="the template's container mounts /dev/shm itself: leave memory.shm out, or the mount"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.memory.shm) || size(self.template.spec.containers) == 0 || !has(self.template.spec.containers[0].resources) || !has(self.template.spec.containers[0].resources.limits) || !('memory' in self.template.spec.containers[0].resources.limits) || quantity(string(self.memory.shm)).compareTo(quantity(string(self.template.spec.containers[0].resources.limits['memory']))) <= 0",fieldPath=".memory.shm",message="memory.shm is more than the container's memory limit, which it counts against: raise the limit, or lower shm"
// +kubebuilder:validation:XValidation:rule="size(self.template.spec.containers) == 1",fieldPath=".template.spec.containers",message="template must have one container, the application: others would hold up the end of the job"
// +kubebuilder:validation:XValidation:rule="self.launchMode == 'Container' || size(self.template.spec.containers) == 0 || (has(self.template.spec.containers[0].command) && size(self.template.spec.containers[0].command) > 0)",fieldPath=".template.spec.containers",message="the container needs a command: the launcher cannot know an image's entry point (or set launchMode: Container)"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.restartPolicy) || size(self.template.spec.restartPolicy) == 0 || self.template.spec.restartPolicy == 'Never'",fieldPath=".template.spec.restartPolicy",message="template.spec.restartPolicy is Never or absent: ranks are restarted all together, see runPolicy.restartLimit"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.hostNetwork) || !self.template.spec.hostNetwork",fieldPath=".template.spec.hostNetwork",message="template.spec.hostNetwork is not needed and not supported: the sidecar has the network"
// +kubebuilder:validation:XValidation:rule="!(has(self.template.spec.hostPID) && self.template.spec.hostPID) && !(has(self.template.spec.hostIPC) && self.template.spec.hostIPC) && !(has(self.template.spec.shareProcessNamespace) && self.template.spec.shareProcessNamespace)",fieldPath=".template.spec",message="template.spec.hostPID, hostIPC and shareProcessNamespace are not supported: the application would see the sidecar's processes and keys"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.dnsPolicy) || self.template.spec.dnsPolicy != 'Default'",fieldPath=".template.spec.dnsPolicy",message="dnsPolicy Default asks the node's name servers, which do not know the pods of the job: leave it out, or set None with a dnsConfig that knows the cluster's"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.dnsPolicy) || self.template.spec.dnsPolicy != 'None' || (has(self.template.spec.dnsConfig) && has(self.template.spec.dnsConfig.nameservers) && size(self.template.spec.dnsConfig.nameservers) > 0 && has(self.template.spec.dnsConfig.searches) && self.template.spec.dnsConfig.searches.exists(s, s.contains('.svc.')))",fieldPath=".template.spec.dnsConfig",message="with dnsPolicy None, dnsConfig needs nameservers that know the cluster's names, and NAMESPACE.svc.DOMAIN among its searches: the sidecars find each other by it"
// +kubebuilder:validation:XValidation:rule="self.podManagement == 'External' || !has(self.template.spec.subdomain) || size(self.template.spec.subdomain) == 0",fieldPath=".template.spec.subdomain",message="template.spec.subdomain is set by Outrigger: the ranks' pods find each other by it; leave it out"
// +kubebuilder:validation:XValidation:rule="self.podManagement == 'External' || !has(self.template.spec.hostname) || size(self.template.spec.hostname) == 0",fieldPath=".template.spec.hostname",message="template.spec.hostname is set by Kubernetes for each pod of a Job: the ranks' pods find each other by it; leave it out"
// +kubebuilder:validation:XValidation:rule="!(has(self.transport) && self.transport.policy == 'Required' && self.transport.type == 'RDMA') || (has(self.devices) && self.devices.exists(d, d.resource.startsWith('outrigger.dev/hca') || !d.resource.startsWith('outrigger.dev/')))",fieldPath=".devices",message="transport RDMA is required, but devices asks for no card, such as outrigger.dev/hca"
type MPIJobSpec struct {
	// ranks is the number of ranks of the job.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=524288
	// +required
	Ranks int32 `json:"ranks,omitempty"`

	// ranksPerPod is the number of ranks that share a pod and its sidecar; the last
	// pod may have fewer.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +default=1
	// +optional
	RanksPerPod int32 `json:"ranksPerPod,omitempty"`

	// launchMode is Processes if a launcher starts the ranks, or Container if the
	// container is one rank.
	// +default="Processes"
	// +optional
	LaunchMode LaunchMode `json:"launchMode,omitempty"`

	// mpi is the MPI of a program that was compiled for one: its ranks find each
	// other, and send their messages, by the sidecars. The image needs the program
	// and its MPI only. Auto is the MPI that the program is linked to. If mpi is
	// absent, a program that is linked to an MPI is refused before it starts; with
	// None each of its ranks runs as a job of its own.
	// +optional
	MPI MPI `json:"mpi,omitempty"`

	// mpiProgress is the work that continues while an MPI program computes. Off: the
	// work of the sidecar. Messages: also copies that only the rank can make, by a
	// thread in each rank. All: also the MPI's own steps, such as those of
	// non-blocking collectives, by MPI_THREAD_SERIALIZED. Absent: that of the sidecar,
	// and accesses of other ranks to windows, by a thread that starts with the first one.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mpiProgress cannot be changed"
	// +optional
	MPIProgress MPIProgress `json:"mpiProgress,omitempty"`

	// stdinFile is a file in the container of the first rank, which rank 0 reads as its
	// standard input. It is opened again when the job is restarted. Absent: rank 0
	// reads nothing.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="stdinFile cannot be changed"
	// +optional
	StdinFile string `json:"stdinFile,omitempty"`

	// podManagement is Managed if the operator makes the pods, or External if
	// another controller makes pods that name this job. With External the template
	// only describes a pod, and restartLimit and suspend have no effect.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="podManagement cannot be changed"
	// +default="Managed"
	// +optional
	PodManagement PodManagement `json:"podManagement,omitempty"`

	// template is the pod of ranksPerPod ranks, with one container: the
	// application. It needs no device, capability or driver.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="template cannot be changed"
	// +required
	Template corev1.PodTemplateSpec `json:"template,omitzero"`

	// devices are those of each pod's sidecar. The application gets none.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="devices cannot be changed"
	// +listType=map
	// +listMapKey=resource
	// +optional
	Devices []DeviceRequest `json:"devices,omitempty"`

	// transport is the transport between pods, and whether the job may run over
	// another one.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="transport cannot be changed"
	// +default={"type":"Auto","policy":"Preferred"}
	// +optional
	Transport TransportSpec `json:"transport,omitzero"`

	// profileName names a FabricProfile of the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="profileName cannot be changed"
	// +optional
	ProfileName string `json:"profileName,omitempty"`

	// memory sizes what the sidecar reserves for its ranks.
	// +optional
	Memory MemorySpec `json:"memory,omitzero"`

	// sidecar has the resources of each pod's sidecar.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sidecar cannot be changed"
	// +optional
	Sidecar SidecarSpec `json:"sidecar,omitzero"`

	// runPolicy has deadlines, restarts and suspension. It can be changed while the
	// job exists.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitzero"`

	// managedBy names the controller that runs this job. If it is another one than
	// Outrigger's, Outrigger's does not act on the object.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="managedBy is DOMAIN/NAME"
	// +optional
	ManagedBy string `json:"managedBy,omitempty"`
}

// DeviceRequest is a number of devices for each pod's sidecar.
type DeviceRequest struct {
	// resource is a resource that the node's agent advertises, such as
	// outrigger.dev/hca.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="resource is DOMAIN/NAME"
	// +required
	Resource string `json:"resource,omitempty"`
	// count is the number of devices.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +default=1
	// +optional
	Count int32 `json:"count,omitempty"`
}

// TransportType is a transport of messages between pods.
//
// +kubebuilder:validation:Enum=Auto;RDMA;TCP;Ether
type TransportType string

// Transports.
const (
	TransportAuto  TransportType = "Auto"
	TransportRDMA  TransportType = "RDMA"
	TransportTCP   TransportType = "TCP"
	TransportEther TransportType = "Ether"
)

// TransportPolicy says what happens if the transport is not available.
//
// +kubebuilder:validation:Enum=Required;Preferred
type TransportPolicy string

// Policies.
const (
	TransportRequired  TransportPolicy = "Required"
	TransportPreferred TransportPolicy = "Preferred"
)

// TransportSpec is the transport between pods.
type TransportSpec struct {
	// type is the transport; Auto is the best one that all pods have. Ether sends small
	// messages by UDP, or by raw Ethernet if devices has a resource of that kind, and large
	// ones by TCP.
	// +default="Auto"
	// +optional
	Type TransportType `json:"type,omitempty"`
	// policy is Required or Preferred. If a Required transport is missing, the job
	// fails and names it. A Preferred one is replaced, and status.transports has the
	// replacement.
	// +default="Preferred"
	// +optional
	Policy TransportPolicy `json:"policy,omitempty"`
}

// MemorySpec sizes the memory that the sidecar reserves for its ranks. Except for shm it is
// charged to the sidecar.
type MemorySpec struct {
	// arena is the memory of each rank from which messages are sent, and into which
	// they are received, without a copy. Default 256Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('65535')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="arena is 64Ki to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="arena cannot be changed"
	// +optional
	Arena *resource.Quantity `json:"arena,omitempty"`
	// slab is the memory of each rank for small messages. Default 4Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('262143')) && quantity(string(self)).isLessThan(quantity('1025Mi'))",message="slab is 256Ki to 1Gi"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="slab cannot be changed"
	// +optional
	Slab *resource.Quantity `json:"slab,omitempty"`
	// allocationsFrom is the size from which on allocations of an MPI program are
	// placed in the arena, such as 64Ki: messages from and into them are not copied
	// in the program. Absent: none is.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('4095')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="allocationsFrom is 4Ki to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allocationsFrom cannot be changed"
	// +optional
	AllocationsFrom *resource.Quantity `json:"allocationsFrom,omitempty"`
	// shm is the size of /dev/shm of an MPI program's container. MPIs keep memory
	// there that the ranks of a pod share: windows, and data of the start. It counts
	// against the limit of the container. Absent: as much as the limits of the pod's
	// containers allow. A container that mounts /dev/shm itself keeps its mount.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('1048575')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="shm is 1Mi to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="shm cannot be changed"
	// +optional
	SHM *resource.Quantity `json:"shm,omitempty"`
}

// SidecarSpec has the resources of each pod's sidecar.
type SidecarSpec struct {
	// resources are CPU and memory of the sidecar; absent ones are the operator's. In
	// a Guaranteed pod, on a node whose CPU manager is static, a whole number of CPUs
	// as the limit gives the sidecar cores of its own.
	// +optional
	Resources SidecarResources `json:"resources,omitzero"`
}

// SidecarResources are CPU and memory of a sidecar.
type SidecarResources struct {
	// requests of the container; without cpu, the limit is requested, and
	// without a limit 250m. Memory is at least what its ranks need.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory'])",message="requests are cpu and memory; devices has the others"
	// +kubebuilder:validation:MaxProperties=2
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// limits of the container; without cpu, it has none. Memory is at least what
	// its ranks need.
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory'])",message="limits are cpu and memory; devices has the others"
	// +kubebuilder:validation:MaxProperties=2
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// RestartAction says what follows a failure.
//
// +kubebuilder:validation:Enum=Restart;Fail
type RestartAction string

// Actions.
const (
	ActionRestart RestartAction = "Restart"
	ActionFail    RestartAction = "Fail"
)

// RestartRule says what follows a failure. It applies to failures that have one of its
// reasons, if it has any, and one of its exit codes, if it has any.
type RestartRule struct {
	// action is Restart, within restartLimit, or Fail.
	// +required
	Action RestartAction `json:"action,omitempty"`
	// reasons are those of firstFailure, such as PodLost.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	// +optional
	Reasons []string `json:"reasons,omitempty"`
	// exitCodes are those of firstFailure; 128+N for signal N.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=2147483647
	// +listType=set
	// +optional
	ExitCodes []int32 `json:"exitCodes,omitempty"`
}

// Disruption says whether drains of nodes may evict pods of a running job.
//
// +kubebuilder:validation:Enum=Allowed;Prevented
type Disruption string

// Disruptions.
const (
	DisruptionAllowed   Disruption = "Allowed"
	DisruptionPrevented Disruption = "Prevented"
)

// Gang is the kind of PodGroup that is made for the pods of an attempt.
// +kubebuilder:validation:Enum=None;SchedulerPlugins;Volcano
type Gang string

// Values of Gang.
const (
	GangNone             Gang = "None"
	GangSchedulerPlugins Gang = "SchedulerPlugins" // scheduling.x-k8s.io/v1alpha1
	GangVolcano          Gang = "Volcano"          // scheduling.volcano.sh/v1beta1
)

// DeadlockAction is the effect of a suspected deadlock on a job.
// +kubebuilder:validation:Enum=Warn;Fail
type DeadlockAction string

// Values of DeadlockAction.
const (
	DeadlockWarn DeadlockAction = "Warn"
	DeadlockFail DeadlockAction = "Fail"
)

// DeadlockAfterDefault is deadlockAfterSeconds if the field is absent.
const DeadlockAfterDefault = 300

// RunPolicy is the part of a job that can be changed while it exists.
type RunPolicy struct {
	// suspend ends the pods and keeps the job; when it is removed, the job starts
	// afresh. As in batch/v1 Job.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// activeDeadlineSeconds ends the job, failed, so long after its first start.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// pendingDeadlineSeconds ends an attempt if not all of its ranks have been
	// started so long after the first pods were made, so that half a job does not
	// hold nodes that another one could use. Absent: ranks that have been started
	// wait for 7 days.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	PendingDeadlineSeconds *int64 `json:"pendingDeadlineSeconds,omitempty"`
	// deadlockAfterSeconds is the time after which a running job is suspected of a
	// deadlock, if every rank has only waited and nothing is in flight. The condition
	// Running then has the reason SuspectedDeadlock, and says what the ranks wait
	// for. Ranks that disagree about a collective are reported sooner, with the
	// reason RanksDisagree. 0 turns both off.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +default=300
	// +optional
	DeadlockAfterSeconds *int32 `json:"deadlockAfterSeconds,omitempty"`
	// deadlockAction is the effect of a suspected deadlock: with Warn the job
	// continues, with Fail its attempt fails.
	// +default="Warn"
	// +optional
	DeadlockAction DeadlockAction `json:"deadlockAction,omitempty"`
	// ttlSecondsAfterFinished deletes the MPIJob so long after its end. Absent:
	// never.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// restartLimit bounds how often all ranks are started again after a failure.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +default=0
	// +optional
	RestartLimit *int32 `json:"restartLimit,omitempty"`
	// restartRules select the failures that are followed by a restart: the first rule
	// that applies to a failure decides. If none applies, all ranks are started again.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	RestartRules []RestartRule `json:"restartRules,omitempty"`
	// gang makes a PodGroup, by which a scheduler starts all pods of an attempt or
	// none: that of scheduler-plugins (Coscheduling), or Volcano. The template's
	// schedulerName selects the scheduler.
	// +default="None"
	// +optional
	Gang Gang `json:"gang,omitempty"`
	// disruption is Allowed or Prevented. Prevented makes a PodDisruptionBudget by
	// which no pod can be evicted while the job runs.
	// +default="Allowed"
	// +optional
	Disruption Disruption `json:"disruption,omitempty"`
}

// DeadlockAfter returns how long every rank must have waited for a suspected deadlock;
// 0: deadlocks are not searched for.
func (p *RunPolicy) DeadlockAfter() time.Duration {
	if p.DeadlockAfterSeconds == nil {
		return DeadlockAfterDefault * time.Second
	}
	return time.Duration(max(*p.DeadlockAfterSeconds, 0)) * time.Second
}
