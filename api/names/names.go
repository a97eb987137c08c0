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
)

// Files that the parts of a pod find each other by.
const (
	// SocketFile is the sidecar's socket inside the shared directory.
	SocketFile = "sidecar.sock"
	// BootstrapFile is the job document inside the sidecar's configuration.
	BootstrapFile = "bootstrap.json"
)

// Kubernetes names.
const (
	// Group is the API group of Outrigger's custom resources.
	Group = "outrigger.dev"
	// LabelInject marks pods that get a sidecar.
	LabelInject = Group + "/inject"
	// ResourceHCA, ResourceIOAT and ResourceDSA are the extended resources
	// that the device plugin advertises.
	ResourceHCA  = Group + "/hca"
	ResourceIOAT = Group + "/ioat"
	ResourceDSA  = Group + "/dsa"
)
