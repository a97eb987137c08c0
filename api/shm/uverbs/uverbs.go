// Package uverbs registers memory with an RDMA device whose descriptor another process has passed
// (LAYOUT.md §5.2). It uses only the kernel's interface: the process that registers has neither the
// device's file nor libibverbs. The pages belong to that process, and count against its limit of
// locked memory.
package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// Errors of Register, for errors.Is.
var (
	// ErrMemlock: the pages would be more than the process may lock.
	ErrMemlock = errors.New("the limit of locked memory does not allow it")
	// ErrDriver: the device's driver registers no memory by this interface.
	ErrDriver = errors.New("the device's driver does not register memory for a process that has not opened it")
)

// Registration is memory that is registered with the device.
type Registration struct {
	Handle     uint32
	Lkey, Rkey uint32
	Addr       uint64 // address of the first byte, for the device
}

// The rights of registered memory: peers may read it, and the device writes to it only data that this
// side has requested (ib_user_ioctl_verbs.h).
const access = 1 | 4 // local write, remote read

// Register registers mem with the device at a random address, so that a peer that was not given the
// address cannot guess it.
func Register(fd int, domain, driver uint32, mem []byte) (Registration, error) {
	if len(mem) == 0 {
		return Registration{}, errors.New("no memory to register")
	}
	page := uint64(os.Getpagesize())
	at := rand.Uint64N(1<<46)&^(page-1) + page + addressOf(mem)%page
	le := binary.NativeEndian
	var in [40]byte // struct ib_uverbs_reg_mr
	le.PutUint64(in[8:], addressOf(mem))
	le.PutUint64(in[16:], uint64(len(mem)))
	le.PutUint64(in[24:], at)
	le.PutUint32(in[32:], domain)
	le.PutUint32(in[36:], access)
	var out [12]byte // struct ib_uverbs_reg_mr_resp
	if err := invoke(fd, driver, commandRegister, in[:], out[:]); err != nil {
		return Registration{}, explain(err, len(mem), driver)
	}
	return Registration{Handle: le.Uint32(out[0:]), Lkey: le.Uint32(out[4:]), Rkey: le.Uint32(out[8:]), Addr: at}, nil
}

// explain returns the meaning of an error of the kernel, and the remedy.
func explain(err error, n int, driver uint32) error {
	switch {
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN):
		var l unix.Rlimit
		limit := "not known"
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil {
			limit = fmt.Sprintf("%d bytes", l.Cur)
		}
		return fmt.Errorf("%w: registering %d bytes, and RLIMIT_MEMLOCK (ulimit -l) of this process is %s: raise it for the container of the program: %w", ErrMemlock, n, limit, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%w: driver %d of the kernel's interface: %w", ErrDriver, driver, err)
	}
	return fmt.Errorf("registering %d bytes with the device: %w", n, err)
}

// Deregister ends a registration. After it has returned, the device does not access the memory.
func Deregister(fd int, driver uint32, r Registration) error {
	var in [4]byte // struct ib_uverbs_dereg_mr
	binary.NativeEndian.PutUint32(in[:], r.Handle)
	if err := invoke(fd, driver, commandDeregister, in[:], nil); err != nil {
		return fmt.Errorf("ending a registration: %w", err)
	}
	return nil
}

// driversMax is more than the number of drivers in the kernel (enum rdma_driver_id).
const driversMax = 64

// Driver returns the kernel's number of the driver of an open device, which every command has to name.
// It queries the state of the first port with one number after the other until one is accepted.
func Driver(fd int) (uint32, error) {
	var last error
	for driver := range uint32(driversMax) {
		var in [16]byte // struct ib_uverbs_query_port
		in[8] = 1
		var out [40]byte // struct ib_uverbs_query_port_resp
		if last = invoke(fd, driver, commandQueryPort, in[:], out[:]); last == nil {
			return driver, nil
		}
	}
	return 0, fmt.Errorf("%w: none of %d numbers is its own: %w", ErrDriver, driversMax, last)
}
