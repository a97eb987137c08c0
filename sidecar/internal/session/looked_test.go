package session

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestLooked checks that an application that waits does so as long as it polls, and has
// read the completions that it reports as read; without such reports, a call that waits
// counts as waiting.
func TestLooked(t *testing.T) {
	now := shm.Moment(5) // the clock's words wrap
	for name, x := range map[string]struct {
		place             shm.Place
		looked            shm.Moment
		free, unread, old bool
	}{
		"looks":                     {shm.Place(0).Waiting(true), now - 1, false, true, false},
		"has looked":                {shm.Place(0).Waiting(true), now - shm.MomentFresh - 1, true, true, false},
		"does not say":              {shm.Place(0).Waiting(true), 0, false, false, false},
		"waits until a time":        {shm.Place(0).Waiting(true).Timed(true), now, true, true, false},
		"computes":                  {0, now, true, false, false},
		"says nothing of its place": {0, 0, false, false, true},
	} {
		s, control := newTestSession(t)
		if !x.old {
			s.Features = shm.FeaturePlace
		}
		control.SetPlace(x.place)
		control.SetLooked(x.looked)
		if s.Unread(0) {
			t.Errorf("%s: something is unread before anything has come", name)
		}
		if err := s.Complete(&shm.Descriptor{Op: shm.OpDone}); err != nil {
			t.Fatal(err)
		}
		if free, unread := s.Unblocked(now), s.Unread(0); free != x.free || unread != x.unread {
			t.Errorf("%s: free %v, unread %v, want %v and %v", name, free, unread, x.free, x.unread)
		}
		if s.Unread(1) {
			t.Errorf("%s: the last completion, which is of a probe in vain, counts as unread", name)
		}
	}
}
