// Package segment creates and maps the sealed shared memory of a session: the control segment
// (header, two rings, slab) and the arena (LAYOUT.md §3). The sidecar creates them, and a client opens
// them by the descriptors of the Welcome.
package segment

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
)

// Offsets of the control segment's header (§3.1). Lines of 64 bytes have one
// writer each.
const (
	offMagic    = 0   // u64, sidecar
	offABI      = 8   // u32
	offRank     = 12  // u32
	offSubmit   = 16  // u32 entries of the submission ring
	offComplete = 20  // u32 entries of the completion ring
	offSlabOff  = 24  // u64
	offSlabLen  = 32  // u64
	offSleeping = 64  // u32, sidecar: the engine may be blocked, ring its doorbell
	offRetired  = 72  // u64, sidecar: silent sends that are off the client's hands
	offWaiting  = 128 // u32, client: futex word, not 0 while the client may be blocked
	offFailure  = 192 // u32 length, then text; sidecar, written before OpFailed
	failureMax  = 252
	offPlace    = 448 // u32, client: Place
	offLooked   = 452 // u32, client: when it last looked at its completions, Moment
	offTags     = 456 // u32, client: how its MPI makes tags (§8.2)
	offActed    = 460 // u32, client: when its application last did more than to repeat calls, Moment
	offError    = 512 // u32 length, u32 absent rank plus one, then text; client
	errorMax    = 200
	offRings    = 4096
	pageBytes   = 4096
	headerMagic = 0x314747_495254554f // "OUTRIGG1", little-endian
)

// Geometry has the sizes of the parts of a control segment.
type Geometry struct {
	SubmitEntries   int // power of two
	CompleteEntries int // power of two
	SlabBytes       int // rounded up to pages
}

// DefaultGeometry is sufficient for a session with a few hundred small messages in flight: 1,024
// entries in each direction and 4 MiB of slab.
var DefaultGeometry = Geometry{SubmitEntries: 1024, CompleteEntries: 1024, SlabBytes: 4 << 20}

func roundPage(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

func (g Geometry) submitOff() int   { return offRings }
func (g Geometry) completeOff() int { return roundPage(g.submitOff() + ring.Bytes(g.SubmitEntries)) }

func (g Geometry) slabOff() int { return roundPage(g.completeOff() + ring.Bytes(g.CompleteEntries)) }

// Bytes returns the size of the whole control segment.
func (g Geometry) Bytes() int { return g.slabOff() + roundPage(g.SlabBytes) }

// Validate checks the bounds of the sizes.
func (g Geometry) Validate() error {
	for _, n := range []int{g.SubmitEntries, g.CompleteEntries} {
		if n < 16 || n > 1<<16 || n&(n-1) != 0 {
			return fmt.Errorf("segment: ring of %d entries, want a power of two between 16 and %d", n, 1<<16)
		}
	}
	if g.SlabBytes < pageBytes || g.SlabBytes > 1<<30 {
		return fmt.Errorf("segment: slab of %d bytes, want %d to %d", g.SlabBytes, pageBytes, 1<<30)
	}
	return nil
}

// Control is a mapped control segment, as both sides see it.
type Control struct {
	mem []byte
	geo Geometry
}

// Memory returns the bytes of the mapping, for tests and for unmapping.
func (c *Control) Memory() []byte { return c.mem }

// Slab returns the memory of the slab.
func (c *Control) Slab() []byte {
	return c.mem[c.geo.slabOff() : c.geo.slabOff()+roundPage(c.geo.SlabBytes)]
}

// SlabOffset returns the offset of the slab, a multiple of the page size.
func (c *Control) SlabOffset() uint64 { return uint64(c.geo.slabOff()) }

// SubmitRing returns the memory of the ring from the application to the sidecar.
func (c *Control) SubmitRing() ([]byte, int) {
	return c.mem[c.geo.submitOff():c.geo.completeOff()], c.geo.SubmitEntries
}

// CompleteRing returns the memory of the ring from the sidecar to the application.
func (c *Control) CompleteRing() ([]byte, int) {
	return c.mem[c.geo.completeOff():c.geo.slabOff()], c.geo.CompleteEntries
}

// Format writes a fresh header into mem and returns the sidecar's view of it.
// mem must be zeroed, page-aligned and g.Bytes() long.
func Format(mem []byte, g Geometry, rank uint32) (*Control, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if len(mem) < g.Bytes() {
		return nil, fmt.Errorf("segment: %d bytes, need %d", len(mem), g.Bytes())
	}
	c := &Control{mem: mem, geo: g}
	put64(mem[offMagic:], headerMagic)
	put32(mem[offABI:], shm.ABIVersion)
	put32(mem[offRank:], rank)
	put32(mem[offSubmit:], uint32(g.SubmitEntries))
	put32(mem[offComplete:], uint32(g.CompleteEntries))
	put64(mem[offSlabOff:], uint64(g.slabOff()))
	put64(mem[offSlabLen:], uint64(roundPage(g.SlabBytes)))
	return c, nil
}

// Read checks the header in mem and returns the client's view of it.
func Read(mem []byte) (*Control, error) {
	if len(mem) < offRings {
		return nil, fmt.Errorf("segment: %d bytes are too few for a header", len(mem))
	}
	if get64(mem[offMagic:]) != headerMagic {
		return nil, fmt.Errorf("segment: not an Outrigger segment (magic %#x)", get64(mem[offMagic:]))
	}
	if v := get32(mem[offABI:]); v != shm.ABIVersion {
		return nil, fmt.Errorf("segment: layout version %d, this library speaks %d", v, shm.ABIVersion)
	}
	g := Geometry{
		SubmitEntries:   int(get32(mem[offSubmit:])),
		CompleteEntries: int(get32(mem[offComplete:])),
		SlabBytes:       int(get64(mem[offSlabLen:])),
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if len(mem) < g.Bytes() || get64(mem[offSlabOff:]) != uint64(g.slabOff()) {
		return nil, fmt.Errorf("segment: header and size do not fit together")
	}
	return &Control{mem: mem, geo: g}, nil
}

// SetFailure stores the reason why the job has failed, truncated to its field in the header. The
// sidecar calls it before it publishes OpFailed.
func (c *Control) SetFailure(text string) {
	n := copy(c.mem[offFailure+4:offFailure+4+failureMax], text)
	put32(c.mem[offFailure:], uint32(n))
}

// Failure returns the text that SetFailure has stored.
func (c *Control) Failure() string {
	n := min(get32(c.mem[offFailure:]), failureMax)
	return string(c.mem[offFailure+4 : offFailure+4+n])
}

// SetLastError stores the error of the client's last call that failed, truncated to its field in the
// header. absent is one more than the rank that had left before a collective completed, or 0. Only
// the client calls it.
func (c *Control) SetLastError(absent uint32, text string) {
	n := copy(c.mem[offError+8:offError+8+errorMax], text)
	put32(c.mem[offError+4:], absent)
	put32(c.mem[offError:], uint32(n))
}

// LastError returns the values that SetLastError has stored.
func (c *Control) LastError() (absent uint32, text string) {
	n := min(get32(c.mem[offError:]), errorMax)
	return get32(c.mem[offError+4:]), string(c.mem[offError+8 : offError+8+n])
}
