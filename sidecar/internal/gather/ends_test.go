package gather

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
)

// TestEndsOfBoth checks that at most a bounded number of registrations end for one that
// is made, those of the other cache included, however often the kernel refuses.
func TestEndsOfBoth(t *testing.T) {
	const limit, most, pages = 2000, 50, 1000
	r, d := over(t, limit<<12, Config{Local: regcache.Config{Ends: most, Batch: 1}, Remote: &regcache.Config{Ends: most}})
	for i := range uint64(limit - 20) { // pages that do not touch each other
		k, err := r.Register(at(10_000+2*i, 4096))
		if err != nil {
			t.Fatal(err)
		}
		r.Release(k)
	}
	for i := range uint64(20) {
		l, ok := r.Pin(at(5000+2*i, 4096))
		if !ok {
			t.Fatal("refused")
		}
		r.Done(l)
	}
	before := len(d.keys)
	if _, ok := r.Pin(at(0, pages<<12)); ok {
		t.Fatal("there is room: the test shows nothing")
	}
	if ended := before - len(d.keys); ended == 0 || ended > most {
		t.Errorf("%d registrations end for one that is asked for, at most %d may", ended, most)
	}
	if s := r.local.Stats(); s.LimitBytes != 1<<30 || s.Postponed == 0 {
		t.Errorf("a limit is learnt although registrations could have ended, and nothing is deferred: %+v", s)
	}
	for range pages {
		if l, ok := r.Pin(at(0, pages<<12)); ok {
			r.Done(l)
			return
		}
	}
	t.Errorf("however often it is asked for, there is no room: %+v", r.local.Stats())
}
