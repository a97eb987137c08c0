package ioat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// VFIO is a device of an IOMMU group that the node's agent has granted to this container.
type VFIO struct {
	address                  string
	container, group, device int // descriptors; -1 if not open
	config                   int64
	regs                     registerFile
	space                    spans
	pinned                   uint64 // bytes that are mapped
}

// Numbers of linux/vfio.h.
const (
	vfioGetVersion    = 0x3b64
	vfioSetIOMMU      = 0x3b66
	vfioGroupStatus   = 0x3b67
	vfioGroupSet      = 0x3b68
	vfioGroupDevice   = 0x3b6a
	vfioRegionInfo    = 0x3b6c
	vfioIOMMUInfo     = 0x3b70
	vfioMapDMA        = 0x3b71
	vfioUnmapDMA      = 0x3b72
	vfioVersion       = 0
	vfioType1v2       = 3
	vfioGroupViable   = 1
	vfioRegionMmap    = 4
	vfioBAR0          = 0
	vfioConfigRegion  = 7
	vfioRead          = 1
	vfioWrite         = 2
	vfioInfoCaps      = 2
	vfioCapIOVA       = 1
	vfioInfoBytes     = 24
	vfioInfoBytesMax  = 1 << 16
	vfioBARBytesLeast = 0x100
)

// OpenVFIO opens the PCI function with an address such as 0000:00:04.1. files are the device
// files of the container: /dev/vfio/vfio and that of the group (devices.Device.Files).
func OpenVFIO(address string, files []string) (*VFIO, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: I/OAT exists on x86 only", ErrUnusable)
	}
	v := &VFIO{address: address, container: -1, group: -1, device: -1}
	if err := v.open(files); err != nil {
		return nil, errors.Join(fmt.Errorf("ioat: device %s: %w", address, err), v.Close())
	}
	return v, nil
}

func (v *VFIO) open(files []string) error {
	container, group := "", ""
	for _, f := range files {
		if filepath.Base(f) == "vfio" {
			container = f
		} else {
			group = f
		}
	}
	if container == "" || group == "" || len(files) != 2 {
		return fmt.Errorf("its files are %s, and must be /dev/vfio/vfio and that of its group", strings.Join(files, " "))
	}
	if err := v.join(container, group); err != nil {
		return err
	}
	var err error
	if v.space, err = v.usable(); err != nil {
		return err
	}
	name, err := unix.BytePtrFromString(v.address)
	if err != nil {
		return err
	}
	if v.device, err = ioctlName(v.group, vfioGroupDevice, name); err != nil {
		return fmt.Errorf("%s has no such device, or it is not bound to vfio-pci: %w", group, err)
	}
	return v.regions()
}

// join opens container and group, and connects them.
func (v *VFIO) join(container, group string) (err error) {
	if v.container, err = unix.Open(container, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		v.container = -1
		return &os.PathError{Op: "open", Path: container, Err: err}
	}
	if version, err := ioctlValue(v.container, vfioGetVersion, 0); err != nil || version != vfioVersion {
		return errors.Join(fmt.Errorf("%s has version %d of VFIO, want %d", container, version, vfioVersion), err)
	}
	if v.group, err = unix.Open(group, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		v.group = -1
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("another process uses the group, which only one process can open: %w", err)
		}
		return &os.PathError{Op: "open", Path: group, Err: err}
	}
	status := words(8)
	if err := ioctlBytes(v.group, vfioGroupStatus, status); err != nil {
		return fmt.Errorf("status of %s: %w", group, err)
	}
	if native.Uint32(status[4:])&vfioGroupViable == 0 {
		return fmt.Errorf("%s is not viable: bind all devices of the group to vfio-pci", group)
	}
	if err := ioctlFD(v.group, vfioGroupSet, v.container); err != nil {
		return fmt.Errorf("adding %s to a container: %w", group, err)
	}
	if _, err := ioctlValue(v.container, vfioSetIOMMU, vfioType1v2); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("the IOMMU of this node does not isolate interrupts: %w", err)
		}
		return fmt.Errorf("IOMMU of %s: %w", group, err)
	}
	return nil
}

// regions finds the configuration space and BAR 0.
func (v *VFIO) regions() error {
	config, err := v.region(vfioConfigRegion)
	if err != nil {
		return fmt.Errorf("its configuration space: %w", err)
	}
	v.config = config.offset
	bar, err := v.region(vfioBAR0)
	if err != nil || bar.size < vfioBARBytesLeast {
		return fmt.Errorf("its registers, of %d bytes: %w", bar.size, errors.Join(err, ErrUnusable))
	}
	if bar.flags&vfioRegionMmap == 0 {
		v.regs = calls{fd: v.device, offset: bar.offset}
		return nil
	}
	mem, err := unix.Mmap(v.device, bar.offset, int(bar.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping its registers: %w", err)
	}
	v.regs = window(mem)
	return nil
}

type regionInfo struct {
	flags  uint32
	size   uint64
	offset int64
}

func (v *VFIO) region(index uint32) (regionInfo, error) {
	b := words(32) // struct vfio_region_info
	native.PutUint32(b[8:], index)
	if err := ioctlBytes(v.device, vfioRegionInfo, b); err != nil {
		return regionInfo{}, err
	}
	return regionInfo{flags: native.Uint32(b[4:]), size: native.Uint64(b[16:]), offset: int64(native.Uint64(b[24:]))}, nil
}

// ReadConfig reads the configuration space.
func (v *VFIO) ReadConfig(off, width uint32) (uint32, error) {
	var b [4]byte
	if n, err := unix.Pread(v.device, b[:width], v.config+int64(off)); err != nil || n != int(width) {
		return 0, errors.Join(fmt.Errorf("ioat: device %s: %d bytes of %d were read from its configuration space at %#x", v.address, n, width, off), err)
	}
	return native.Uint32(b[:]), nil
}

// WriteConfig writes the configuration space.
func (v *VFIO) WriteConfig(off, width, value uint32) error {
	var b [4]byte
	native.PutUint32(b[:], value)
	if n, err := unix.Pwrite(v.device, b[:width], v.config+int64(off)); err != nil || n != int(width) {
		return errors.Join(fmt.Errorf("ioat: device %s: %d bytes of %d were written to its configuration space at %#x", v.address, n, width, off), err)
	}
	return nil
}

// Alloc returns memory that is shared, so that a fork of this process does not move it.
func (v *VFIO) Alloc(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
}

// Free frees what Alloc has returned.
func (v *VFIO) Free(mem []byte) error { return unix.Munmap(mem) }

// pages returns the pages that hold mem.
func pages(mem []byte) (start, n uint64) {
	size := uint64(os.Getpagesize())
	start = uint64(address(mem)) &^ (size - 1)
	end := (uint64(address(mem)) + uint64(len(mem)) + size - 1) &^ (size - 1)
	return start, end - start
}

// Map pins the pages of mem and maps them. Memory that this process may only read is mapped for
// reading.
func (v *VFIO) Map(mem []byte) (uint64, error) {
	start, n := pages(mem)
	iova, ok := v.space.take(n)
	if !ok {
		return 0, fmt.Errorf("ioat: device %s: its IOMMU has no free address for %d bytes", v.address, n)
	}
	if err := v.mapAt(start, iova, n); err != nil {
		v.space.give(iova, n)
		return 0, err
	}
	return iova + uint64(address(mem)) - start, nil
}

func (v *VFIO) mapAt(start, iova, n uint64) error {
	b := words(32) // struct vfio_iommu_type1_dma_map
	native.PutUint32(b[4:], vfioRead|vfioWrite)
	native.PutUint64(b[8:], start)
	native.PutUint64(b[16:], iova)
	native.PutUint64(b[24:], n)
	err := ioctlBytes(v.container, vfioMapDMA, b)
	if errors.Is(err, unix.EFAULT) {
		native.PutUint32(b[4:], vfioRead)
		err = ioctlBytes(v.container, vfioMapDMA, b)
	}
	if err != nil {
		var l unix.Rlimit
		limit := "not known"
		if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil {
			limit = strconv.FormatUint(l.Cur, 10) + " bytes"
		}
		return explainMap(err, v.address, n, v.pinned, limit)
	}
	v.pinned += n
	return nil
}

// ErrMemlock is wrapped by errors for memory that the limit of locked memory does not allow to
// map.
var ErrMemlock = errors.New("ioat: the limit of locked memory does not allow it")

func explainMap(err error, address string, n, pinned uint64, limit string) error {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: mapping %d bytes for device %s, which has %d bytes, and RLIMIT_MEMLOCK (ulimit -l) of this process is %s: raise --memlock-max of the device plugin, or the container's limit: %w",
			ErrMemlock, n, address, pinned, limit, err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("ioat: mapping %d bytes for device %s: the kernel's bound of mappings is reached; raise dma_entry_limit of vfio_iommu_type1: %w", n, address, err)
	}
	return fmt.Errorf("ioat: mapping %d bytes for device %s: %w", n, address, err)
}

// Unmap ends a mapping.
func (v *VFIO) Unmap(mem []byte, iova uint64) error {
	start, n := pages(mem)
	at := iova - (uint64(address(mem)) - start)
	if err := v.unmapAt(at, n); err != nil {
		return err
	}
	v.space.give(at, n)
	return nil
}

func (v *VFIO) unmapAt(iova, n uint64) error {
	b := words(24) // struct vfio_iommu_type1_dma_unmap
	native.PutUint64(b[8:], iova)
	native.PutUint64(b[16:], n)
	if err := ioctlBytes(v.container, vfioUnmapDMA, b); err != nil {
		return fmt.Errorf("ioat: device %s: unmapping %d bytes: %w", v.address, n, err)
	}
	if got := native.Uint64(b[16:]); got != n {
		return fmt.Errorf("ioat: device %s: %d bytes of %d were unmapped", v.address, got, n)
	}
	v.pinned -= n
	return nil
}

// Close closes the device. The kernel then resets it and removes all mappings.
func (v *VFIO) Close() error {
	var err error
	if v.regs != nil {
		err = v.regs.close()
		v.regs = gone{}
	}
	for _, fd := range []*int{&v.device, &v.group, &v.container} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
		}
		*fd = -1
	}
	return err
}

// usable asks for the addresses that the IOMMU translates.
func (v *VFIO) usable() (spans, error) {
	b := words(vfioInfoBytes)
	if err := ioctlBytes(v.container, vfioIOMMUInfo, b); err != nil {
		return nil, fmt.Errorf("addresses of its IOMMU: %w", err)
	}
	if n := native.Uint32(b); n > vfioInfoBytes && n <= vfioInfoBytesMax {
		b = words(int(n))
		if err := ioctlBytes(v.container, vfioIOMMUInfo, b); err != nil {
			return nil, fmt.Errorf("addresses of its IOMMU: %w", err)
		}
	}
	return usableOf(b), nil
}

// usableOf reads the ranges of addresses in a struct vfio_iommu_type1_info. Kernels before 5.4
// list none; then those are used that every x86 machine translates.
func usableOf(b []byte) (all spans) {
	if list := capability(b, vfioCapIOVA); list != nil {
		ranges := list[16:]
		for range min(int(native.Uint32(list[8:])), len(ranges)/16) {
			all.give(native.Uint64(ranges), native.Uint64(ranges[8:])-native.Uint64(ranges)+1)
			ranges = ranges[16:]
		}
	}
	if len(all) == 0 {
		all.give(1<<32, 1<<38)
	}
	return all
}

// capability returns a capability of a struct vfio_iommu_type1_info and what is behind it, or
// nil if there is none.
func capability(b []byte, id uint16) []byte {
	if native.Uint32(b[4:])&vfioInfoCaps == 0 {
		return nil
	}
	at := uint64(native.Uint32(b[16:]))
	for n := 0; n < capsMax && at >= vfioInfoBytes && at+16 <= uint64(len(b)); n++ {
		if native.Uint16(b[at:]) == id {
			return b[at:]
		}
		at = uint64(native.Uint32(b[at+4:]))
	}
	return nil
}
