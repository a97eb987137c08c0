package link

// Grant is what an application needs to register memory of its own with a device.
type Grant struct {
	FD     int    // of the context's commands; it stays the context's
	Domain uint32 // handle of the protection domain
	Driver uint32 // number of the device's driver in the kernel's interface
}

// Context is a device's context that was opened for one application alone. Whoever
// has its descriptor has authority over all that is in it: so nothing is in it but what
// serves this application.
type Context interface {
	Grant() Grant
	Close() error
}

// Lent is memory that an application has registered on its Context, as it says: what
// is not true of it makes operations fail, and does nothing else.
type Lent struct {
	Addr       uint64 // of its first byte, for the device
	Len        uint64
	Lkey, Rkey uint32
}

// LentCounts are what a Lender has done since it began.
type LentCounts struct {
	Reads  uint64 `json:"reads"`  // from or into lent memory
	Bytes  uint64 `json:"bytes"`  // of those that have ended well
	Pairs  uint64 `json:"pairs"`  // queue pairs made for it
	Faults uint64 `json:"faults"` // and those that failed, whose reads were copied then
}

// Add adds what another one has done.
func (c *LentCounts) Add(d *LentCounts) {
	c.Reads += d.Reads
	c.Bytes += d.Bytes
	c.Pairs += d.Pairs
	c.Faults += d.Faults
}

// LentShift is where the number of lent memory is in an offset of its region.
const LentShift = 48

// Lender is a Remote that reads from and into memory that applications have
// registered themselves (Caps.Lent). That memory is a region of its own for each
// application, of which Memory knows no bytes.
type Lender interface {
	// Admit makes r the region of what is registered on x, which is the link's from then
	// on: it ends with DropRegion.
	Admit(r Region, x Context) error
	// Lend adds memory to the region, from the offset number<<LentShift on.
	Lend(r Region, number uint32, m Lent) error
	// Reclaim takes it out again. Operations under way go on, as far as the
	// registration does.
	Reclaim(r Region, number uint32)
}
