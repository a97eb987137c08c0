//go:build !rdma

package verbs

// Built reports whether this build can use devices.
const Built = false

func openDevice([]Granted, int, func([]portState) (Port, error)) (nic, error) {
	return nil, ErrBuild
}
