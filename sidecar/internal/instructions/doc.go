// Package instructions counts, for tests on linux/amd64, the instructions that a goroutine
// executes. It needs no performance counter, which virtual machines and containers often lack:
// another process runs the test again, and the test steps through one thread of it by ptrace.
// The counts are exact, and depend neither on the load of the machine nor on its speed.
//
// Only instructions in user mode are counted: a system call is one instruction, in addition to
// those of the functions around it. A step takes 2 us, and up to 30 us on a virtual machine
// whose hypervisor handles each one. Code that reads a clock finds that much more time has
// passed: give it a clock of the test, or bound what it does by time.
package instructions
