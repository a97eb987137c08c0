// Package plan defines the steps that the pods in virtual machines execute in order. Both
// machines get the same plan.
package plan

// File is the name of the file with the plan, which is in the folder of the machines' programs.
const File = "plan.json"

// Both is the argument with which one machine runs both pods.
const Both = "both"

// Enough is the path of a file that is made when the drills of a step have ended.
const Enough = "/tmp/enough"

// Step is a job of two pods, or a command that each machine runs by itself.
type Step struct {
	Name string
	// Of a job: its document, and what its ranks run.
	Document string   `json:",omitempty"`
	Program  []string `json:",omitempty"`
	Ranks    []string `json:",omitempty"` // ranks of each pod, such as 0-1
	Devices  string   `json:",omitempty"` // devices of the pod in the device plugin's format; empty: no device is granted
	MPI      string   `json:",omitempty"` // MPI of the program, as in the launcher's flag --mpi
	Env      []string `json:",omitempty"` // variables of the ranks, in addition to the machine's

	// Of a command: one for each machine. The second is tried again while the first
	// is not there yet.
	Commands [][]string `json:",omitempty"`

	Breaks  int    `json:",omitempty"` // number of errors of the queue pair that are forced while the job runs
	Kill    int    `json:",omitempty"` // number of messages of the sidecar of pod 1 after which the pod's first rank is killed; 0: no rank is killed
	Loss    string `json:",omitempty"` // share of packets that are lost, such as 2%
	Status  int    `json:",omitempty"` // exit status that the job's ranks must have; -1: any but 0
	Sidecar int    `json:",omitempty"` // exit status that the sidecar must have

	Memlock uint64 `json:",omitempty"` // bytes that the sidecar may lock, without the right to lock more; 0: no limit
}
