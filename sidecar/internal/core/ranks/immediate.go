package ranks

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// Immediate is the 32 bits of data that a message carries in addition to its tag (L§4.3), and
// a bit that is set if there are any. In a message of a collective, the bits above identify
// the collective.
type Immediate uint64

const immediateThere Immediate = 1 << 63

// ImmediateOf makes an Immediate of a word and the bits above it, the highest of which must be 0.
func ImmediateOf(word, above uint32) Immediate {
	return immediateThere | Immediate(above)<<32 | Immediate(word)
}

// DataOf returns the data of a send's descriptor.
func DataOf(d *shm.Descriptor) Immediate {
	if d.Flags&shm.FlagData == 0 {
		return 0
	}
	return ImmediateOf(uint32(d.Status), 0)
}

// Carried returns the data of a message with the header h. word is the data if there are any.
func Carried(h *wire.Header, word uint64) Immediate {
	if h.Flags&wire.FlagData == 0 {
		return 0
	}
	return immediateThere | Immediate(word)
}

// There reports whether there are data.
func (i Immediate) There() bool { return i&immediateThere != 0 }

// Word returns the 32 bits.
func (i Immediate) Word() uint32 { return uint32(i) }

// Bits returns the bits as they are sent: the word, and those above it.
func (i Immediate) Bits() uint64 { return uint64(i &^ immediateThere) }

// Above returns the bits above the word.
func (i Immediate) Above() uint32 { return uint32(i &^ immediateThere >> 32) }

// Tell writes the data into the completion of a receive or probe.
func (i Immediate) Tell(d *shm.Descriptor) {
	if i.There() {
		d.Flags |= shm.FlagData
		d.Context = i.Word()
	}
}
