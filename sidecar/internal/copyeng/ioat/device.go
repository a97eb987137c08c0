package ioat

// Device is a PCI function with I/OAT channels. Its methods are called on one goroutine.
type Device interface {
	Registers
	Config
	Memory
	// Close ends the access to the device, and the access of the device to memory.
	Close() error
}

// Registers accesses BAR 0. Each method does one access of the named width, and accesses are
// neither merged nor reordered. A write orders earlier stores to memory before itself; a read
// orders later loads after itself.
type Registers interface {
	Read8(off uint32) uint8
	Read32(off uint32) uint32
	Read64(off uint32) uint64
	Write8(off uint32, v uint8)
	Write16(off uint32, v uint16)
	Write32(off uint32, v uint32)
	Write64(off uint32, v uint64)
}

// Config accesses the configuration space; width is 1, 2 or 4 bytes.
type Config interface {
	ReadConfig(off, width uint32) (uint32, error)
	WriteConfig(off, width, v uint32) error
}

// Memory makes memory of this process accessible to the device.
type Memory interface {
	// Alloc returns memory for descriptors, which begins at a page. The race detector knows
	// accesses only to memory of Go's runtime, so a simulated device returns such memory.
	Alloc(n int) ([]byte, error)
	// Free frees what Alloc has returned.
	Free(mem []byte) error
	// Map returns the address at which the device sees mem, whose bytes then have consecutive
	// addresses. mem must not move and must stay mapped until Unmap.
	Map(mem []byte) (iova uint64, err error)
	// Unmap ends what Map began. When it has returned, the device does not access mem.
	Unmap(mem []byte, iova uint64) error
}

// Registers of the device, and of channel n at channelBase(n).
const (
	regChannels = 0x00 // CHANCNT, 8 bits
	regXferCap  = 0x01 // XFERCAP, 8 bits
	regVersion  = 0x08 // CBVER, 8 bits

	regControl  = 0x00 // CHANCTRL, 16 bits
	regCommand  = 0x04 // CHANCMD, 8 bits
	regCount    = 0x06 // DMACOUNT, 16 bits
	regStatus   = 0x08 // CHANSTS, 64 bits
	regChain    = 0x10 // CHAINADDR, 64 bits
	regComplete = 0x18 // CHANCMP, 64 bits
	regError    = 0x28 // CHANERR, 32 bits; a written 1 clears
)

func channelBase(n int) uint32 { return 0x80 * uint32(n+1) }

// Values of registers.
const (
	countMask   = 0x1f // of CHANCNT and XFERCAP
	versionMin  = 0x30
	xferCapMin  = 12 // the base 2 logarithm of the least valid XFERCAP
	xferCapUsed = 30 // that of the longest descriptor that this package makes

	// CHANCTRL: an error aborts the chain, and is written to the completion word. Without the
	// second bit, a failed copy looks like one that never ends.
	controlRun = 0x08 | 0x04

	commandReset   = 0x20
	commandSuspend = 0x04

	// Status of a channel, in CHANSTS and in the completion word. The bits of addressMask are
	// the address of the last descriptor that has ended.
	statusMask      = 0x07
	statusActive    = 0
	statusIdle      = 1
	statusSuspended = 2
	statusHalted    = 3
	statusArmed     = 4
	addressMask     = ^uint64(0x3f)
)

// The configuration space.
const (
	cfgVendorID     = 0x00 // and the device's id in the upper half
	cfgCommand      = 0x04
	cfgStatus       = 0x06
	cfgClass        = 0x0a
	cfgCapabilities = 0x34
	cfgErrorInt     = 0x180 // CHANERR_INT; a written 1 clears
	cfgErrorMaskInt = 0x184 // CHANERRMASK_INT

	intel           = 0x8086
	classPeripheral = 0x0880

	pciMemory       = 0x2
	pciMaster       = 0x4
	pciHasList      = 0x10 // in cfgStatus
	capExpress      = 0x10
	capsMax         = 48 // as many capabilities fit into the 192 bytes behind the header
	expressControl  = 0x8
	relaxedOrdering = 0x10

	// skylake is the device of Skylake and Cascade Lake. Linux's driver treats it as version
	// 3.2, whatever CBVER says.
	skylake        = 0x2021
	skylakeVersion = 0x32
	// Before version 3.3, errors stay in cfgErrorInt. Before 3.2, errors that cause no failure
	// of a copy can stop the device unless they are masked.
	versionOwnErrors = 0x33
	versionNoMask    = 0x32
	errorMaskInt     = 0x3e07
)
