package session

import (
	"sync/atomic"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// wakeClient wakes the application if it may be blocked. The completions were
// published before; the client sets the word before its last look (LAYOUT §8).
func (s *Session) wakeClient() error {
	w := s.control.Waiting()
	if atomic.LoadUint32(w) == 0 {
		return nil
	}
	atomic.StoreUint32(w, 0)
	return wake.Wake(w)
}
