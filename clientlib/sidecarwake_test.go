package outrigger

import (
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// wakeClient does what an engine does after it has published (LAYOUT §8).
func (f *fake) wakeClient() {
	if atomic.SwapUint32(f.control.Waiting(), 0) != 0 {
		_ = wake.Wake(f.control.Waiting()) // wakes all waiters, if there are any
	}
}
