// Package job is what a test tells a virtual machine to do, and what the machine
// answers: two files in the folder that both see.
package job

import (
	"fmt"
	"time"
)

// Names in the shared folder.
const (
	File     = "job.json"    // a Job
	Result   = "result.json" // a Verdict, written last
	Output   = "output.log"  // what the command has said
	Programs = "bin"         // programs, copied into the machine before the command starts
	Kept     = "kept"        // what the command leaves here comes out
)

// Host is the shared folder inside of the machine.
const Host = "/host"

// EnvNode tells the command which of the machines it is in.
const EnvNode = "RDMAVM_NODE"

// Job of one machine.
type Job struct {
	Node    int           // this machine, from 0
	Nodes   int           // 1: a device on a pair of virtual cables; 2: joined back to back
	Command []string      // the first is a program of the folder, or one of the guest
	Env     []string      // NAME=VALUE
	Limit   time.Duration // for the command
}

// Verdict is how a job ended.
type Verdict struct {
	Status int    // the command's exit status; -1: it did not run, or was ended by a signal
	Cause  string // in words, when it is not 0
}

// Device is the RDMA device of every machine.
const Device = "rxe0"

// Address of a machine on the network between them.
func Address(node int) string { return fmt.Sprintf("10.8.0.%d", node+1) }
