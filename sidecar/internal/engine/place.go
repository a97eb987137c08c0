package engine

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Placement of the engine's thread. Where there are no more processors than
// ranks and sidecars, the kernel leaves a sidecar where it was: beside a rank
// that computes it takes the time of its copies from that rank, and nothing is
// hidden. What the kernel cannot know, the ranks say (LAYOUT §8.1). While large
// messages move the engine keeps off processors on which its ranks compute.
// One whose ranks only wait goes to where they do: what is there yields to it,
// and what is elsewhere may compute for somebody else.
//
// A rank's word is a hint. One that lies slows its own sidecar down, which
// never leaves the processors that it may use anyway.
const (
	// moveAfter is the shortest time between two changes of processors.
	moveAfter = int64(5 * time.Millisecond)
	// stayFor is how long they are kept after the last large message, or the
	// last word of a rank to the same effect.
	stayFor = int64(100 * time.Millisecond)
)

// affinity is which processors the calling thread may run on.
type affinity interface {
	get(*unix.CPUSet) error
	set(*unix.CPUSet) error
}

// threadAffinity is that of the kernel's threads.
type threadAffinity struct{}

func (threadAffinity) get(s *unix.CPUSet) error { return unix.SchedGetaffinity(0, s) }
func (threadAffinity) set(s *unix.CPUSet) error { return unix.SchedSetaffinity(0, s) }

// stint is the processor on which a rank was last said to compute beside large
// messages, and when that was. Ranks compute and wait in turn, in less time
// than it takes to move.
type stint struct {
	cpu  int
	when int64
}

// placer chooses the processors of the engine's thread. Times are nanoseconds
// of the engine's clock.
type placer struct {
	affinity affinity
	off      bool // there is no choice, or the system refused one

	home   unix.CPUSet // what the thread may use
	at     unix.CPUSet // what it is kept to
	kept   bool        // at is not home
	until  int64       // how long it is kept without news
	moveAt int64       // no change before

	moved  uint64  // large pieces as last seen
	large  int64   // when there were some last
	stints []stint // by place in the list of sessions
}

func newPlacer(a affinity) placer {
	p := placer{affinity: a}
	p.off = a.get(&p.home) != nil || p.home.Count() < 2
	return p
}

// due reports whether place has something to decide: large messages moved, or
// none did for long. moved is the core's count.
func (p *placer) due(now int64, moved uint64) bool {
	if p.off {
		return false
	}
	if moved != p.moved {
		p.moved, p.large = moved, now
		return true
	}
	return p.kept && now >= p.until
}

// place moves the thread to where it should be, by what its ranks say.
func (p *placer) place(now int64, crowded bool, ranks []shm.Place) error {
	if want, ok := p.choose(now, crowded, ranks); ok {
		p.until = now + stayFor
		return p.keep(now, want)
	}
	if p.kept && now >= p.until {
		return p.keep(now, p.home)
	}
	return nil
}

// choose says where the thread should be; false: the ranks do not say.
func (p *placer) choose(now int64, crowded bool, ranks []shm.Place) (want unix.CPUSet, ok bool) {
	var waits unix.CPUSet
	want = p.home
	for len(p.stints) < len(ranks) {
		p.stints = append(p.stints, stint{})
	}
	for i, r := range ranks {
		s := &p.stints[i]
		cpu, known := r.CPU()
		switch {
		case !known || !p.home.IsSet(cpu):
			continue
		case r.Computes():
			*s = stint{cpu, now}
		case r.Waits():
			waits.Set(cpu)
		}
		if s.when != 0 && now-s.when < stayFor {
			want.Clear(s.cpu)
		}
	}
	if want == p.home && crowded {
		want = waits
	}
	n := want.Count()
	return want, n > 0 && n < p.home.Count()
}

// keep limits the thread to processors.
func (p *placer) keep(now int64, want unix.CPUSet) error {
	if want == p.at && p.kept || want == p.home && !p.kept || now < p.moveAt {
		return nil
	}
	if !p.kept {
		// What the thread may use can change while it is free to use it.
		if err := p.affinity.get(&p.home); err != nil {
			return p.refuse(err)
		}
	}
	p.moveAt = now + moveAfter
	if err := p.affinity.set(&want); err != nil {
		return p.refuse(err)
	}
	p.at, p.kept = want, want != p.home
	return nil
}

func (p *placer) refuse(err error) error {
	p.off = true
	return fmt.Errorf("choosing the processors of the engine's thread: %w", err)
}

// release lets the thread go where it may.
func (p *placer) release() {
	if p.kept {
		p.kept = false
		_ = p.affinity.set(&p.home) // the thread is about to end
	}
}
