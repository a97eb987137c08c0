// Package names holds the names that several rooms must agree on: environment
// variables, paths, Kubernetes labels and resources. Nothing here has behaviour.
package names

// Environment of an application process, set by the launcher.
const (
	// EnvSocket is the path of the sidecar's Unix socket.
	EnvSocket = "OUTRIGGER_SOCKET"
	// EnvRank is the world rank that this process shall take.
	EnvRank = "OUTRIGGER_RANK"
	// EnvArena is the arena that this process asks for, in bytes (suffixes
	// KiB, MiB, GiB are understood); the sidecar may grant less.
	EnvArena = "OUTRIGGER_ARENA"
	// EnvWait is the wait policy of the client: poll, yield or block.
	EnvWait = "OUTRIGGER_WAIT"
	// EnvProvider names the folder of liboutrigger-fi.so, for the case that it is not
	// in the launcher's own folder.
	EnvProvider = "OUTRIGGER_PROVIDER_PATH"
	// EnvLibMPI is the libmpi of Open MPI programs, where outrigger-pmix does not
	// find it as they do.
	EnvLibMPI = "OUTRIGGER_LIBMPI"
	// EnvPMI is how MPICH and Intel MPI reach process management: fd, a descriptor
	// that ranks inherit, or port, a port on the pod's loopback.
	EnvPMI = "OUTRIGGER_PMI"
	// EnvMPIRun says 1 where a program that is not called like one runs an mpirun or
	// mpiexec: it is started once, and not once for each rank.
	EnvMPIRun = "OUTRIGGER_MPIRUN"
	// EnvMPIArena says that the large allocations of an MPI program lie in the arena
	// of its rank: on, or the smallest such allocation, as EnvArena says a size; off,
	// or nothing.
	EnvMPIArena = "OUTRIGGER_MPI_ARENA"
	// EnvMPIReport says 1 where each rank of an MPI program tells at its end what it
	// has sent and received in place and by copying.
	EnvMPIReport = "OUTRIGGER_MPI_REPORT"
	// EnvMPIProgress says what goes on while an MPI program computes: messages, which a
	// thread of the provider's moves; all, also the MPI's own steps, as those of
	// non-blocking collectives; off, nothing.
	EnvMPIProgress = "OUTRIGGER_MPI_PROGRESS"
	// EnvMPICheck has liboutrigger-check.so end a process whose MPI has selected another
	// transport (select), and tell the sidecar of processes that load an MPI, too (loaded).
	// The library itself says cleared to what a wrapper starts with an environment of its own; a
	// job says off for a program that each rank runs as a job of its own.
	EnvMPICheck = "OUTRIGGER_MPI_CHECK"
	// EnvMPIRanks is how many ranks the job has, more than one, for those that an mpirun of
	// the program starts: its world is that of all, or of one (clientlib/c/check).
	EnvMPIRanks = "OUTRIGGER_MPI_RANKS"
	// EnvMPIHere is which of these ranks the pod has, as FIRST-LAST.
	EnvMPIHere = "OUTRIGGER_MPI_HERE"
	// EnvHost is the host name of a pod that shares its machine with other pods of the
	// job, for the daemons of an mpirun (clientlib/c/host).
	EnvHost = "OUTRIGGER_HOST"
	// EnvAgent is the sidecar's process management for outrigger-ssh, by which an
	// mpirun starts its daemons.
	EnvAgent = "OUTRIGGER_AGENT"
	// EnvPod is the number of a container's pod within its job, in Kubernetes.
	EnvPod = "OUTRIGGER_POD"
)

// Environment of a sidecar, set by the device plugin.
const (
	// EnvGrantSocket is the path of the node agent's socket (api/grant) in the
	// container.
	EnvGrantSocket = "OUTRIGGER_GRANT_SOCKET"
)

// Files that the parts of a pod find each other by.
const (
	// SocketFile is the sidecar's socket inside the shared directory.
	SocketFile = "sidecar.sock"
	// PMISuffix makes the path of the sidecar's process-management socket of that of
	// its socket: several sidecars may share a directory.
	PMISuffix = ".pmi"
	// LaunchSuffix makes the path of the socket at which a launcher asks its sidecar of that
	// of the sidecar's socket, in the same way.
	LaunchSuffix = ".run"
	// BootstrapFile is the job document inside the sidecar's configuration.
	BootstrapFile = "bootstrap.json"
	// GrantSocket is the node agent's socket, on the node and in the containers
	// that hold a device. Its directory has nothing else in it, because the
	// whole of it is mounted: the socket is made anew when the agent restarts.
	GrantSocket = "/run/outrigger-agent/grant.sock"
)

// Kubernetes names.
const (
	// Group is the API group of Outrigger's custom resources.
	Group = "outrigger.dev"
	// LabelInject marks pods that get a sidecar.
	LabelInject = Group + "/inject"
	// LabelJob is the MPIJob that a pod or another object belongs to.
	LabelJob = Group + "/job-name"
	// LabelJobUID is which MPIJob of that name a pod of another controller has joined.
	LabelJobUID = Group + "/job-uid"
	// LabelPodNumber is a pod's number in its job, for pods whose controller
	// does not tell it in a label of its own.
	LabelPodNumber = Group + "/pod-number"
	// AnnotationContainer names the application among a pod's containers. The operator's
	// webhook sets it where a pod has none.
	AnnotationContainer = Group + "/container"
	// LabelAttempt is the attempt of the MPIJob, from 0.
	LabelAttempt = Group + "/attempt"
	// ResourceHCA, ResourceIOAT and ResourceDSA are the extended resources
	// that the device plugin advertises.
	ResourceHCA  = Group + "/hca"
	ResourceIOAT = Group + "/ioat"
	ResourceDSA  = Group + "/dsa"
)

// What is inside a pod with a sidecar.
const (
	// ContainerSidecar and ContainerInstall are the containers that are added.
	ContainerSidecar = "outrigger"
	ContainerInstall = "outrigger-install"
	// VolumeSHM is the volume for /dev/shm of an MPI program; not every pod has it.
	VolumeSHM = "outrigger-shm"
	// VolumeShared, VolumeJob, VolumeToken and VolumeNone are the volumes that
	// are added; only the first reaches the application.
	VolumeShared = "outrigger"
	VolumeJob    = "outrigger-job"
	VolumeToken  = "outrigger-token" //nolint:gosec // the name of a volume
	VolumeNone   = "outrigger-none"
	// SharedDir, JobDir and TokenDir are where the first three are mounted. The
	// last one, which is empty, covers the token of the pod's service account.
	SharedDir = "/run/outrigger"
	JobDir    = "/etc/outrigger/job"
	TokenDir  = "/var/run/secrets/outrigger.dev" //nolint:gosec // a directory
	// TokenFile is the sidecar's token in TokenDir. TokenAudience is the audience of
	// the token; no other service accepts it.
	TokenFile     = "token"
	TokenAudience = Group + "/issuer"
	// PortPeers is where sidecars listen for each other, PortMetrics where they
	// serve metrics and health.
	PortPeers   = 7077
	PortMetrics = 9464
	// PortIssuer is where the operator's pods serve sidecars their certificates.
	PortIssuer = 9442
	// PortMetricsLocal is where they serve metrics to their own pod alone, where
	// the admin wants that; PortMetrics has health then.
	PortMetricsLocal = 9465
)
