package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MPIJob is one run of a parallel program: ranks in pods, each pod with a
// sidecar that does its communication.
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
	// spec is what is asked for.
	// +required
	Spec MPIJobSpec `json:"spec,omitzero"`
	// status is what is there.
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

// LaunchMode says how ranks come to be.
//
// +kubebuilder:validation:Enum=Processes;Container
type LaunchMode string

const (
	// LaunchProcesses starts the container's command once a rank, by a launcher
	// that passes signals and output on.
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
	// MPIAuto is what the program is linked to.
	MPIAuto    MPI = "Auto"
	MPIMPICH   MPI = "MPICH"
	MPIIntel   MPI = "Intel"
	MPIOpenMPI MPI = "OpenMPI"
	// MPINone is for programs of Outrigger's client library, and for those of an MPI of which
	// each rank shall run as a job of its own.
	MPINone MPI = "None"
)

// Used reports whether a program uses an MPI: an absent field and None do not say so.
func (m MPI) Used() bool { return m != "" && m != MPINone }

// MPIProgress is what goes on while an MPI program computes.
//
// +kubebuilder:validation:Enum=Off;Messages;All
type MPIProgress string

// What can go on.
const (
	// MPIProgressOff is what the sidecar does by itself.
	MPIProgressOff MPIProgress = "Off"
	// MPIProgressMessages is also what has to be copied in the program, and accesses
	// of others to its windows.
	MPIProgressMessages MPIProgress = "Messages"
	// MPIProgressAll is also the MPI's own steps, as those of collectives.
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
	// operator's webhook; status tells of them.
	PodsExternal PodManagement = "External"
)

// MPIJobSpec is what is asked for. Except for runPolicy it cannot be changed.
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

	// ranksPerPod is how many ranks share a pod and its sidecar; the last pod
	// may have fewer.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +default=1
	// +optional
	RanksPerPod int32 `json:"ranksPerPod,omitempty"`

	// launchMode says whether a launcher starts the ranks (Processes) or the
	// container is one rank (Container).
	// +default="Processes"
	// +optional
	LaunchMode LaunchMode `json:"launchMode,omitempty"`

	// mpi is the MPI of a program that was compiled for one: its ranks find each
	// other, and send their messages, by the sidecars. Auto looks at what the
	// program is linked to. Nothing has to be in the image but the program and
	// its MPI. Where it is absent, a program that is linked to an MPI is refused
	// before it starts; None has each of its ranks run as a job of its own.
	// +optional
	MPI MPI `json:"mpi,omitempty"`

	// mpiProgress says what goes on while an MPI program computes: Messages, by a
	// thread in each rank that copies what only the rank can; All, also the steps of
	// the MPI's own, as those of non-blocking collectives, by MPI_THREAD_SERIALIZED; Off,
	// what the sidecar does by itself. Absent: Off.
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

	// podManagement says who makes the pods: the operator (Managed), or another
	// controller whose pods name this job (External). Then the template only
	// says what a pod looks like, and restartLimit and suspend do nothing.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="podManagement cannot be changed"
	// +default="Managed"
	// +optional
	PodManagement PodManagement `json:"podManagement,omitempty"`

	// template is the pod of ranksPerPod ranks, with one container: the
	// application. It needs no device, capability or driver.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="template cannot be changed"
	// +required
	Template corev1.PodTemplateSpec `json:"template,omitzero"`

	// devices are what each pod's sidecar gets. The application gets none.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="devices cannot be changed"
	// +listType=map
	// +listMapKey=resource
	// +optional
	Devices []DeviceRequest `json:"devices,omitempty"`

	// transport says what the ranks shall talk over, and whether the job may
	// run over something else.
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

	// sidecar is what each pod's sidecar gets.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="sidecar cannot be changed"
	// +optional
	Sidecar SidecarSpec `json:"sidecar,omitzero"`

	// runPolicy is what can be changed while the job exists.
	// +optional
	RunPolicy RunPolicy `json:"runPolicy,omitzero"`

	// managedBy names the controller that runs this job, if it is not
	// Outrigger's own; ours then leaves the object alone.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="managedBy is DOMAIN/NAME"
	// +optional
	ManagedBy string `json:"managedBy,omitempty"`
}

// DeviceRequest is a number of devices for each pod's sidecar.
type DeviceRequest struct {
	// resource is what the node's agent advertises, such as outrigger.dev/hca.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="resource is DOMAIN/NAME"
	// +required
	Resource string `json:"resource,omitempty"`
	// count is how many of them.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +default=1
	// +optional
	Count int32 `json:"count,omitempty"`
}

// TransportType is a way for messages between pods.
//
// +kubebuilder:validation:Enum=Auto;RDMA;TCP
type TransportType string

// Transports.
const (
	TransportAuto TransportType = "Auto"
	TransportRDMA TransportType = "RDMA"
	TransportTCP  TransportType = "TCP"
)

// TransportPolicy says what happens when the transport cannot be had.
//
// +kubebuilder:validation:Enum=Required;Preferred
type TransportPolicy string

// Policies.
const (
	TransportRequired  TransportPolicy = "Required"
	TransportPreferred TransportPolicy = "Preferred"
)

// TransportSpec says what the ranks shall talk over.
type TransportSpec struct {
	// type is the transport; Auto takes the best that all pods have.
	// +default="Auto"
	// +optional
	Type TransportType `json:"type,omitempty"`
	// policy: a Required transport that is missing fails the job, naming it; a
	// Preferred one is replaced, and status.transports says by what.
	// +default="Preferred"
	// +optional
	Policy TransportPolicy `json:"policy,omitempty"`
}

// MemorySpec sizes what the sidecar reserves. It is charged to the sidecar.
type MemorySpec struct {
	// arena is the memory of each rank that messages can be sent from and
	// received into without a copy. Default 256Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('65535')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="arena is 64Ki to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="arena cannot be changed"
	// +optional
	Arena *resource.Quantity `json:"arena,omitempty"`
	// slab is the memory of each rank for small messages. Default 4Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('262143')) && quantity(string(self)).isLessThan(quantity('1025Mi'))",message="slab is 256Ki to 1Gi"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="slab cannot be changed"
	// +optional
	Slab *resource.Quantity `json:"slab,omitempty"`
	// allocationsFrom is the smallest allocation of an MPI program that lies in
	// the arena, such as 64Ki: messages from and into it are not copied in the
	// program. Absent: none does.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('4095')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="allocationsFrom is 4Ki to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allocationsFrom cannot be changed"
	// +optional
	AllocationsFrom *resource.Quantity `json:"allocationsFrom,omitempty"`
	// shm is the size of /dev/shm of an MPI program's container, where MPIs keep what
	// the ranks of a pod share: windows, and what they know at the start. It is memory
	// of the container, whose limit it counts against. Absent: as much as the limits of
	// the pod's containers allow. A container that mounts /dev/shm itself keeps that.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('1048575')) && quantity(string(self)).isLessThan(quantity('16Ti'))",message="shm is 1Mi to 16Ti"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="shm cannot be changed"
	// +optional
	SHM *resource.Quantity `json:"shm,omitempty"`
}

// SidecarSpec is what each pod's sidecar gets.
type SidecarSpec struct {
	// resources are added to what the operator asks for the sidecar. A whole
	// number of CPUs as the limit gives it cores of its own in a Guaranteed pod,
	// where the node's CPU manager is static.
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

// RestartRule says what follows failures of some kind. It is about those that
// have one of its reasons, if it has any, and one of its exit codes, if it has
// any.
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

// Disruption says whether drains of nodes may take pods of a running job away.
//
// +kubebuilder:validation:Enum=Allowed;Prevented
type Disruption string

// Disruptions.
const (
	DisruptionAllowed   Disruption = "Allowed"
	DisruptionPrevented Disruption = "Prevented"
)

// Gang is whose PodGroup is made for the pods of an attempt.
// +kubebuilder:validation:Enum=None;SchedulerPlugins;Volcano
type Gang string

// Values of Gang.
const (
	GangNone             Gang = "None"
	GangSchedulerPlugins Gang = "SchedulerPlugins" // scheduling.x-k8s.io/v1alpha1
	GangVolcano          Gang = "Volcano"          // scheduling.volcano.sh/v1beta1
)

// DeadlockAction is what a suspected deadlock does to a job.
// +kubebuilder:validation:Enum=Warn;Fail
type DeadlockAction string

// Values of DeadlockAction.
const (
	DeadlockWarn DeadlockAction = "Warn"
	DeadlockFail DeadlockAction = "Fail"
)

// DeadlockAfterDefault is deadlockAfterSeconds where nothing is said.
const DeadlockAfterDefault = 300

// RunPolicy is what can be changed while the job exists.
type RunPolicy struct {
	// suspend ends the pods and keeps the job; without it the job starts
	// afresh. As in batch/v1 Job.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// activeDeadlineSeconds ends the job, failed, so long after its first start.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// pendingDeadlineSeconds ends an attempt whose ranks have not all been
	// started so long after its pods began to be made: half a job holds nodes
	// that another one could use. Absent: 7 days, for what has been started.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	PendingDeadlineSeconds *int64 `json:"pendingDeadlineSeconds,omitempty"`
	// deadlockAfterSeconds: a running job in which every rank has only waited
	// for so long, with nothing under way, is suspected of a deadlock. Its
	// condition Running then has the reason SuspectedDeadlock, and says what the
	// ranks wait for. Ranks that are seen to disagree about a collective are told
	// sooner, with the reason RanksDisagree. 0: never, neither.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +default=300
	// +optional
	DeadlockAfterSeconds *int32 `json:"deadlockAfterSeconds,omitempty"`
	// deadlockAction is what happens then: Warn lets the job go on, Fail is a
	// failure of its attempt.
	// +default="Warn"
	// +optional
	DeadlockAction DeadlockAction `json:"deadlockAction,omitempty"`
	// ttlSecondsAfterFinished deletes the MPIJob so long after its end. Absent:
	// never.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// restartLimit is how often all ranks are started again after a failure.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +default=0
	// +optional
	RestartLimit *int32 `json:"restartLimit,omitempty"`
	// restartRules choose which failures are worth a restart: the first one that
	// is about a failure decides. Without one all ranks are started again.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	RestartRules []RestartRule `json:"restartRules,omitempty"`
	// gang makes a PodGroup, by which a scheduler that knows it starts all pods
	// of an attempt or none: that of scheduler-plugins (Coscheduling), or Volcano.
	// The scheduler is the template's schedulerName.
	// +default="None"
	// +optional
	Gang Gang `json:"gang,omitempty"`
	// disruption: Prevented makes a PodDisruptionBudget that lets no pod be
	// evicted while the job runs.
	// +default="Allowed"
	// +optional
	Disruption Disruption `json:"disruption,omitempty"`
}

// DeadlockAfter is how long every rank must have waited for a suspected deadlock;
// 0: nobody looks.
func (p *RunPolicy) DeadlockAfter() time.Duration {
	if p.DeadlockAfterSeconds == nil {
		return DeadlockAfterDefault * time.Second
	}
	return time.Duration(max(*p.DeadlockAfterSeconds, 0)) * time.Second
}
