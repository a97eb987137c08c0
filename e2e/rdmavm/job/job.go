// Package job defines the job that a test gives to a virtual machine, and the verdict that the
// machine returns. Both are files in a folder that the host and the machine share.
package job

import (
	"fmt"
	"time"
)

// Names in the shared folder.
const (
	File     = "job.json"    // file with the Job, as JSON
	Result   = "result.json" // file with the Verdict, as JSON, which is written last
	Output   = "output.log"  // file with the output of the command
	Programs = "bin"         // folder of the programs, which are copied into the machine before the command starts
	Kept     = "kept"        // folder whose files the test gets when the command has ended
)

// Host is the shared folder inside of the machine.
const Host = "/host"

// EnvNode is the variable with the number of the machine, for the command.
const EnvNode = "RDMAVM_NODE"

// Job is the job of one machine.
type Job struct {
	Node    int           // number of this machine, from 0
	Nodes   int           // number of machines; 1: the device is on a pair of virtual cables; 2: the machines are joined back to back
	Command []string      // the command; the first element is a program in the folder Programs, or one of the guest
	Env     []string      // variables of the command, as NAME=VALUE
	Limit   time.Duration // maximum run time of the command
	Modules []string      // sets of kernel modules that are loaded in addition
}

// Verdict is the result of a job.
type Verdict struct {
	Status int    // exit status of the command; -1: the command did not run, or was ended by a signal
	Cause  string // description of the failure, if Status is not 0
}

// Device is the RDMA device of every machine.
const Device = "rxe0"

// Address returns the address of a machine on the network between the machines.
func Address(node int) string { return fmt.Sprintf("10.8.0.%d", node+1) }
