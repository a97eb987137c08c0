// Package names holds the names that several rooms must agree on: environment
// variables, paths, Kubernetes labels and resources. Nothing here has behaviour.
package names

// Environment of an application process, set by the launcher.
const (
	// EnvSocket is the path of the sidecar's Unix socket.
	EnvSocket = "OUTRIGGER_SOCKET"
	// EnvRank is the world rank of this process.
	EnvRank = "OUTRIGGER_RANK"
	// EnvArena is the size of the arena that this process requests, in bytes (the suffixes
	// KiB, MiB and GiB are allowed); the sidecar may grant less.
	EnvArena = "OUTRIGGER_ARENA"
	// EnvWait is the wait policy of the client: poll, yield or block.
	EnvWait = "OUTRIGGER_WAIT"
	// EnvProvider is the folder of liboutrigger-fi.so, if the library is not in the launcher's
	// own folder.
	EnvProvider = "OUTRIGGER_PROVIDER_PATH"
	// EnvLibMPI is the path of the libmpi of Open MPI programs, if outrigger-pmix does not
	// find the library in the same way as the programs.
	EnvLibMPI = "OUTRIGGER_LIBMPI"
	// EnvPMI is how MPICH and Intel MPI connect to process management: fd, by a descriptor
	// that ranks inherit, or port, by a port on the pod's loopback address.
	EnvPMI = "OUTRIGGER_PMI"
	// EnvMPIRun is 1 if a program whose name does not show it runs mpirun or mpiexec. It is
	// then started once, and not once for each rank.
	EnvMPIRun = "OUTRIGGER_MPIRUN"
	// EnvMPIArena is whether the large allocations of an MPI program are placed in the arena
	// of its rank: on, or the minimum size of such an allocation, in the form of EnvArena; off
	// or empty for none.
	EnvMPIArena = "OUTRIGGER_MPI_ARENA"
	// EnvMPIReport is 1 if each rank of an MPI program reports at its end how much data it has
	// sent and received in place and by copying.
	EnvMPIReport = "OUTRIGGER_MPI_REPORT"
	// EnvMPIProgress is what makes progress while an MPI program computes: messages, which a
	// thread of the provider moves; all, which adds the MPI's own steps, such as those of
	// non-blocking collectives; off, nothing.
	EnvMPIProgress = "OUTRIGGER_MPI_PROGRESS"
	// EnvMPICheck makes liboutrigger-check.so end a process whose MPI has selected another
	// transport (select), or in addition report to the sidecar each process that loads an MPI
	// (loaded). The library itself sets it to cleared for the programs that a wrapper starts
	// with a new environment. A job sets it to off for a program that each rank runs as a
	// separate job.
	EnvMPICheck = "OUTRIGGER_MPI_CHECK"
	// EnvMPIRanks is the number of ranks of the job, if it is more than one, for the ranks
	// that an mpirun of the program starts: the world of such a rank has all ranks of the job,
	// or one (clientlib/c/check).
	EnvMPIRanks = "OUTRIGGER_MPI_RANKS"
	// EnvMPIHere is the range of these ranks in the pod, in the form FIRST-LAST.
	EnvMPIHere = "OUTRIGGER_MPI_HERE"
	// EnvHost is the host name of a pod that shares its machine with other pods of the
	// job, for the daemons of an mpirun (clientlib/c/host).
	EnvHost = "OUTRIGGER_HOST"
	// EnvAgent is the address of the sidecar's process management for outrigger-ssh, with
	// which an mpirun starts its daemons.
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

// Files by which the processes of a pod find each other.
const (
	// SocketFile is the sidecar's socket inside the shared directory.
	SocketFile = "sidecar.sock"
	// PMISuffix is appended to the path of the sidecar's socket to get the path of its
	// process-management socket: several sidecars may share a directory.
	PMISuffix = ".pmi"
	// BeatSuffix is appended in the same way to get the path of the file that shows whether the
	// sidecar runs (api/shm).
	BeatSuffix = ".beat"
	// LaunchSuffix is appended in the same way to get the path of the socket for requests of
	// launchers.
	LaunchSuffix = ".run"
	// BootstrapFile is the job document inside the sidecar's configuration.
	BootstrapFile = "bootstrap.json"
	// GrantSocket is the path of the node agent's socket, on the node and in the containers
	// that hold a device. Its directory contains nothing else, because the whole directory is
	// mounted: a restarted agent makes a new socket.
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
	// LabelJobUID is the UID of the MPIJob that a pod of another controller has joined.
	LabelJobUID = Group + "/job-uid"
	// LabelPodNumber is a pod's number in its job, for pods whose controller does not set a
	// label with the number.
	LabelPodNumber = Group + "/pod-number"
	// AnnotationContainer is the name of the application's container in a pod. The operator's
	// webhook sets it if a pod does not have it.
	AnnotationContainer = Group + "/container"
	// LabelAttempt is the attempt of the MPIJob, from 0.
	LabelAttempt = Group + "/attempt"
	// ResourceHCA, ResourceIOAT, ResourceDSA and ResourceEther are the extended
	// resources that the device plugin advertises.
	ResourceHCA   = Group + "/hca"
	ResourceIOAT  = Group + "/ioat"
	ResourceDSA   = Group + "/dsa"
	ResourceEther = Group + "/ether"
)

// Names and ports in a pod with a sidecar.
const (
	// ContainerSidecar and ContainerInstall are the containers that are added.
	ContainerSidecar = "outrigger"
	ContainerInstall = "outrigger-install"
	// VolumeSHM is the volume for /dev/shm of an MPI program; other pods do not have it.
	VolumeSHM = "outrigger-shm"
	// VolumeShared, VolumeJob, VolumeToken and VolumeNone are the added volumes; only the
	// first one is mounted into the application.
	VolumeShared = "outrigger"
	VolumeJob    = "outrigger-job"
	VolumeToken  = "outrigger-token" //nolint:gosec // the name of a volume
	VolumeNone   = "outrigger-none"
	// SharedDir, JobDir and TokenDir are the mount paths of the first three. The last one,
	// which is empty, covers the token of the pod's service account.
	SharedDir = "/run/outrigger"
	JobDir    = "/etc/outrigger/job"
	TokenDir  = "/var/run/secrets/outrigger.dev" //nolint:gosec // a directory
	// TokenFile is the sidecar's token in TokenDir. TokenAudience is the audience of
	// the token; no other service accepts it.
	TokenFile     = "token"
	TokenAudience = Group + "/issuer"
	// PortPeers is the port on which sidecars listen for each other, and PortMetrics the port
	// for metrics and health.
	PortPeers   = 7077
	PortMetrics = 9464
	// PortIssuer is the port on which the operator's pods issue certificates to sidecars.
	PortIssuer = 9442
	// PortMetricsLocal is the port on which sidecars serve metrics only within their pods, if
	// the administrator wants that; PortMetrics then serves only health.
	PortMetricsLocal = 9465
)
