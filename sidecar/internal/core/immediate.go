package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// immediate is the 32 bits that travel beside a message's tag (L§4.3), and a bit
// above them that says that there are some.
type immediate uint64

const immediateThere immediate = 1 << 32

// dataOf is what a send's descriptor says.
func dataOf(d *shm.Descriptor) immediate {
	if d.Flags&shm.FlagData == 0 {
		return 0
	}
	return immediateThere | immediate(uint32(d.Status))
}

// carried is what a message of header h brings, of which word is the data if
// there are some.
func carried(h *wire.Header, word uint32) immediate {
	if h.Flags&wire.FlagData == 0 {
		return 0
	}
	return immediateThere | immediate(word)
}

func (i immediate) there() bool  { return i&immediateThere != 0 }
func (i immediate) word() uint32 { return uint32(i) }

// tell puts the data into the completion of a receive or probe.
func (i immediate) tell(d *shm.Descriptor) {
	if i.there() {
		d.Flags |= shm.FlagData
		d.Context = i.word()
	}
}
