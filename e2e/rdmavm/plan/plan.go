// Package plan is what a pod in a virtual machine does, one step after the other:
// the same file for both machines.
package plan

// File is the plan, among the programs of the machines.
const File = "plan.json"

// Both is the argument by which one machine runs the pods of both.
const Both = "both"

// Enough is the file that appears when a step's drills are over.
const Enough = "/tmp/enough"

// Step is a job of two pods, or a command that each machine runs by itself.
type Step struct {
	Name string
	// Of a job: its document, and what its ranks run.
	Document string   `json:",omitempty"`
	Program  []string `json:",omitempty"`
	Ranks    []string `json:",omitempty"` // of each pod, such as 0-1
	Devices  string   `json:",omitempty"` // what the device plugin would say; empty: none granted
	MPI      string   `json:",omitempty"` // of the program, as the launcher's --mpi
	Env      []string `json:",omitempty"` // of the ranks, in addition to the machine's

	// Of a command: one for each machine. The second is tried again while the first
	// is not there yet.
	Commands [][]string `json:",omitempty"`

	Breaks  int    `json:",omitempty"` // forced errors of the queue pair while the job runs
	Kill    int    `json:",omitempty"` // pod 1's first rank is killed once its sidecar has moved so many messages; 0: none is
	Loss    string `json:",omitempty"` // of packets, such as 2%
	Status  int    `json:",omitempty"` // that the job's ranks must end with; -1: any but 0
	Sidecar int    `json:",omitempty"` // exit status of the sidecar

	Memlock uint64 `json:",omitempty"` // bytes that the sidecar may lock, without the right to lock more; 0: no limit
}
