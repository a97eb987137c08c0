// Package sight is what the holder of e2e/devices tells its test.
package sight

import "github.com/outrigger-hpc/outrigger/api/devices"

// Sight is what a container sees.
type Sight struct {
	UID     int
	Devices []devices.Device
	// Files are the character devices below /dev: their numbers, and why they
	// cannot be opened.
	Files    map[string]string
	Problems []string
	// Socket is the node agent's; Refusal why it did not do what was asked,
	// Memlock the limit in bytes afterwards, Heard what the other pod said.
	Socket, Refusal, Heard string
	Memlock                uint64
}
