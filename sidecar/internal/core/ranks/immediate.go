package ranks

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// Immediate is the 32 bits that travel beside a message's tag (L§4.3), of a
// collective's above them what it tells of itself, and a bit that says that there are some.
type Immediate uint64

const immediateThere Immediate = 1 << 63

// ImmediateOf has word beside the tag, and above, of which the highest bit is 0, above it.
func ImmediateOf(word, above uint32) Immediate {
	return immediateThere | Immediate(above)<<32 | Immediate(word)
}

// DataOf is what a send's descriptor says.
func DataOf(d *shm.Descriptor) Immediate {
	if d.Flags&shm.FlagData == 0 {
		return 0
	}
	return ImmediateOf(uint32(d.Status), 0)
}

// Carried is what a message of header h brings, of which word is the data if
// there are some.
func Carried(h *wire.Header, word uint64) Immediate {
	if h.Flags&wire.FlagData == 0 {
		return 0
	}
	return immediateThere | Immediate(word)
}

// There reports that there are some.
func (i Immediate) There() bool { return i&immediateThere != 0 }

// Word is the 32 bits themselves.
func (i Immediate) Word() uint32 { return uint32(i) }

// Bits are what travels: the word, and what is above it.
func (i Immediate) Bits() uint64 { return uint64(i &^ immediateThere) }

// Above is what is above the word.
func (i Immediate) Above() uint32 { return uint32(i &^ immediateThere >> 32) }

// Tell puts the data into the completion of a receive or probe.
func (i Immediate) Tell(d *shm.Descriptor) {
	if i.There() {
		d.Flags |= shm.FlagData
		d.Context = i.Word()
	}
}
