package link

// Grant is what an application needs to register its own memory with a device.
type Grant struct {
	FD     int    // file descriptor of the context's commands; the context keeps ownership
	Domain uint32 // handle of the protection domain
	Driver uint32 // number of the device's driver in the kernel's interface
}

// Context is a device's context that was opened for one application alone. The holder of
// its descriptor has authority over everything in the context, so the context contains
// only objects that serve this application.
type Context interface {
	Grant() Grant
	Close() error
}

// Lent describes memory that an application has registered on its Context. The
// application supplies the values: if they are false, operations fail, without other
// effects.
type Lent struct {
	Addr       uint64 // address of its first byte, for the device
	Len        uint64
	Lkey, Rkey uint32
}

// LentCounts counts the work of a Lender since its start.
type LentCounts struct {
	Reads  uint64 `json:"reads"`  // reads from or into lent memory
	Bytes  uint64 `json:"bytes"`  // bytes of the reads that succeeded
	Pairs  uint64 `json:"pairs"`  // queue pairs created for the reads
	Faults uint64 `json:"faults"` // queue pairs that failed; their reads were copied then
}

// Add adds the counts of d.
func (c *LentCounts) Add(d *LentCounts) {
	c.Reads += d.Reads
	c.Bytes += d.Bytes
	c.Pairs += d.Pairs
	c.Faults += d.Faults
}

// LentShift is the position of the number of lent memory within an offset of its region.
const LentShift = 48

// Lender is a Remote that reads from and into memory that applications have registered
// themselves (Caps.Lent). That memory is a region of its own for each application, and
// Memory cannot access its bytes.
type Lender interface {
	// Admit makes r the region of the memory that is registered on x. The link owns x
	// from then on, and closes it in DropRegion.
	Admit(r Region, x Context) error
	// Lend adds memory to the region, beginning at the offset number<<LentShift.
	Lend(r Region, number uint32, m Lent) error
	// Reclaim removes it again. Operations in flight continue as far as the registration
	// lasts.
	Reclaim(r Region, number uint32)
}
