package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// immediate is the 32 bits that travel beside a message's tag (L§4.3), of a
// collective's above them its particulars, and a bit that says that there are some.
type immediate uint64

const immediateThere immediate = 1 << 63

// dataOf is what a send's descriptor says.
func dataOf(d *shm.Descriptor) immediate {
	if d.Flags&shm.FlagData == 0 {
		return 0
	}
	return immediateThere | immediate(uint32(d.Status))
}

// carried is what a message of header h brings, of which word is the data if
// there are some.
func carried(h *wire.Header, word uint64) immediate {
	if h.Flags&wire.FlagData == 0 {
		return 0
	}
	return immediateThere | immediate(word)
}

func (i immediate) there() bool  { return i&immediateThere != 0 }
func (i immediate) word() uint32 { return uint32(i) }

// bits are what travels, word and particulars.
func (i immediate) bits() uint64 { return uint64(i &^ immediateThere) }

func (i immediate) particulars() particulars { return particulars(i &^ immediateThere >> 32) }

// tell puts the data into the completion of a receive or probe.
func (i immediate) tell(d *shm.Descriptor) {
	if i.there() {
		d.Flags |= shm.FlagData
		d.Context = i.word()
	}
}
