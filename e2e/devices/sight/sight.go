// Package sight defines the report of the holder of e2e/devices to its test.
package sight

import "github.com/outrigger-hpc/outrigger/api/devices"

// Sight is the report of a container.
type Sight struct {
	UID     int
	Devices []devices.Device
	// Files are the character devices below /dev: their numbers, and why they
	// cannot be opened.
	Files    map[string]string
	Problems []string
	// Socket is the path of the node agent's socket, Refusal its reason for a refusal, Memlock
	// the limit in bytes afterwards, Heard the text of the other pod.
	Socket, Refusal, Heard string
	Memlock                uint64
}
