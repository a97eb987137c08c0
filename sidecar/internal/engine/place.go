package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Placement of the engine's thread. Where there are no more processors than
// ranks and sidecars, the kernel leaves a sidecar where it was, for every
// processor is busy, be it with a rank that waits and yields. Beside a rank
// that computes, its copies take that rank's time, and nothing is hidden.
//
// What the kernel cannot know, the ranks say (LAYOUT §8.1). While large
// messages move, the engine keeps off processors on which its own ranks
// compute, and says so to its peers. An engine whose ranks only wait cannot see
// whose time it takes. If a peer's ranks compute, and its own yields last long
// (pace.go), it may be theirs, and it goes to where its ranks wait: they give
// way to it.
//
// Two engines that exchange a large message beside ranks that only wait are as many
// as the processors, if each has its own. The kernel has put them anywhere: all four
// processes are always ready to run, and the ranks do nothing. On one processor each
// waits for the other, and a message takes twice as long. So an engine whose yields
// last, while it works (pace.go), goes away from where it is. Of two that share, one
// is to go: when is left to chance, and the other one then finds itself alone.
//
// A rank's word is a hint. One that lies slows its own sidecar down, which
// never leaves the processors that it may use anyway, and moves at a bounded
// rate.
const (
	// lookEvery is the shortest time between two looks at what ranks say.
	lookEvery = int64(200 * time.Microsecond)
	// moveAfter is the shortest time between two changes of processors.
	moveAfter = int64(5 * time.Millisecond)
	// stayFor is how long they are kept after the last look that was in favour
	// of it, and how long a rank that computed is expected to do so again. Ranks
	// compute and wait in turn, in less time than it takes to move.
	stayFor = int64(100 * time.Millisecond)
)

// affinity is which processors the calling thread may run on.
type affinity interface {
	get(*unix.CPUSet) error
	set(*unix.CPUSet) error
	cpu() int // on which it is now
}

// threadAffinity is that of the kernel's threads.
type threadAffinity struct{}

func (threadAffinity) get(s *unix.CPUSet) error { return unix.SchedGetaffinity(0, s) }
func (threadAffinity) set(s *unix.CPUSet) error { return unix.SchedSetaffinity(0, s) }
func (threadAffinity) cpu() int                 { return wake.CPU() }

// stint is the processor on which a rank was last said to compute while large
// messages moved, and when that was; 0: never.
type stint struct {
	cpu  int
	when int64
}

// placer chooses the processors of the engine's thread. Times are nanoseconds
// of the engine's clock.
type placer struct {
	affinity affinity
	off      bool // there is no choice, or the system refused one

	moved  uint64      // pieces of large messages, as last seen
	beside uint64      // frames of peers whose ranks compute, as last seen
	heard  int64       // when the last one came; 0: never
	busy   bool        // ranks of this engine compute
	lookAt int64       // no look before
	home   unix.CPUSet // what the thread may use
	at     unix.CPUSet // what it is kept to
	kept   bool        // at is not home
	until  int64       // how long it is kept without a look in favour
	moveAt int64       // no change before
	apart  bool        // it is kept to where it is alone
	partAt int64       // it does not go away from another engine before
	pause  int64       // between the last two times that it did
	stints []stint     // by core.SessionID
}

// newPlacer is for the thread that it is called on.
func newPlacer(a affinity) placer {
	p := placer{affinity: a}
	p.off = a.get(&p.home) != nil || p.home.Count() < 2
	return p
}

// news reports whether it is time to look, and large messages have moved since
// the last look; moved is the core's count.
func (p *placer) news(now int64, moved uint64) bool {
	if moved == p.moved || now < p.lookAt || p.off {
		return false
	}
	p.moved, p.lookAt = moved, now+lookEvery
	return true
}

// hear notes that ranks of a peer compute; beside is the core's count.
func (p *placer) hear(now int64, beside uint64) {
	if beside != p.beside {
		p.beside, p.heard = beside, now
	}
}

// place moves the thread to where it should be while large messages move.
// crowded says that somebody computes on the thread's processor, and shared that
// somebody works there whenever this engine yields; ranks is what each session says,
// or zero.
func (p *placer) place(now int64, crowded, shared bool, ranks []shm.Place) error {
	want, ok := p.choose(now, crowded && p.heard != 0 && now-p.heard < stayFor, ranks)
	switch {
	case ok:
		p.apart = false
	case shared && p.parts(now):
		want = p.part()
	case p.kept && p.apart:
		want = p.at // as long as large messages move
	default:
		return p.rest(now)
	}
	p.until = now + stayFor
	return p.keep(now, want)
}

// Pauses before a move away from another engine, drawn between half of them and all:
// the first, and the longest. They double: where there are more engines than
// processors, moving does not help.
const (
	partMin = int64(4 * time.Millisecond)
	partMax = int64(time.Second)
)

// parts reports that a pause is over since the engine has shared its processor.
func (p *placer) parts(now int64) bool {
	switch {
	case p.pause == 0 || now-p.partAt > partMax: // it has been alone so far, or for long
		p.pause = partMin
	case now < p.partAt || now < p.moveAt:
		return false
	default:
		p.pause = min(2*p.pause, partMax)
		p.partAt = now + p.draw(p.pause)
		return true
	}
	p.partAt = now + p.draw(p.pause)
	return false
}

// draw is a time between half of n and n.
func (p *placer) draw(n int64) int64 { return n/2 + rand.Int64N(n/2) }

// part is where to go to be alone.
func (p *placer) part() unix.CPUSet {
	p.apart = true
	want := p.home
	want.Clear(p.affinity.cpu())
	return want
}

// rest lets the thread go where it may when there is no reason left.
func (p *placer) rest(now int64) error {
	if !p.kept || now < p.until {
		return nil
	}
	return p.keep(now, p.home)
}

// choose says where the thread should be; false: the ranks do not say. disturbs
// says that the thread may be where a peer's rank computes.
func (p *placer) choose(now int64, disturbs bool, ranks []shm.Place) (want unix.CPUSet, ok bool) {
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
	p.busy = want != p.home
	if !p.busy && disturbs {
		want = waits
	}
	n := want.Count()
	return want, n > 0 && n < p.home.Count()
}

// keep limits the thread to processors.
func (p *placer) keep(now int64, want unix.CPUSet) error {
	if p.kept && want == p.at || now < p.moveAt {
		return nil
	}
	p.moveAt = now + moveAfter
	if !p.kept {
		// What the thread may use can have changed while it was free to.
		was := p.home
		if err := p.affinity.get(&p.home); err != nil {
			return p.refuse(err)
		}
		if p.home != was {
			return nil // the next look chooses anew
		}
	}
	p.at, p.kept = want, want != p.home
	if err := p.affinity.set(&p.at); err != nil {
		return p.refuse(err)
	}
	return nil
}

func (p *placer) refuse(err error) error {
	p.off, p.kept = true, false
	return fmt.Errorf("choosing the processors of the engine's thread: %w", err)
}

// release lets the thread go where it may, at the end of the engine.
func (p *placer) release() {
	if p.kept {
		p.kept = false
		_ = p.affinity.set(&p.home) // the thread does nothing more
	}
}
