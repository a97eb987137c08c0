package engine

import (
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Placement of the engine's thread. Where there are no more processors than
// ranks and sidecars, the kernel leaves a sidecar where it was, for every
// processor is busy, be it with a rank that waits and yields. Beside a rank
// that computes, its copies take that rank's time, and nothing is hidden.
//
// What the kernel cannot know, the ranks say (LAYOUT §8.1), and sidecars of one
// machine say to each other (P§5.8). While large messages move, the engine keeps
// off processors on which its own ranks compute, or its neighbours' ranks do.
//
// Two engines that exchange a large message beside ranks that only wait are as many
// as the processors, if each has its own. The kernel has put them anywhere: all four
// processes are ready to run so often, and the ranks do nothing. On one processor each
// waits for the other, and a message takes twice as long. So an engine keeps off the
// processors of its neighbours' engines, too, if there are others left; of two on one
// processor the one of the higher-numbered pod goes.
//
// The word of a rank or of a neighbour is a hint. One that lies slows this sidecar
// down, which never leaves the processors that it may use anyway, and moves at a
// bounded rate.
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

	self   link.Peer
	moved  uint64      // pieces of large messages, as last seen
	lookAt int64       // no look before
	home   unix.CPUSet // what the thread may use
	at     unix.CPUSet // what it is kept to
	kept   bool        // at is not home
	until  int64       // how long it is kept without a look in favour
	moveAt int64       // no change before
	stints []stint     // by core.SessionID
	seat   core.Seat   // as of the last look
	beside bool        // a rank computed on the engine's processor then
	moves  int         // changes of processors
}

// newPlacer is for the thread that it is called on, of the sidecar self.
func newPlacer(a affinity, self link.Peer) placer {
	p := placer{affinity: a, self: self}
	p.off = a.get(&p.home) != nil || p.home.Count() < 2
	return p
}

// news reports whether it is time to look, and large messages have moved since
// the last look; moved is the core's count.
func (p *placer) news(now int64, moved uint64) bool {
	if moved == p.moved || now < p.lookAt {
		return false
	}
	p.moved, p.lookAt = moved, now+lookEvery
	return true
}

// place moves the thread to where it should be while large messages move; ranks is
// what each session says, or zero.
func (p *placer) place(now int64, ranks []shm.Place, neighbours []core.Neighbour) error {
	p.look(now, ranks, neighbours)
	if p.off {
		return nil
	}
	want := p.choose(now, neighbours)
	if n := want.Count(); n == 0 || n == p.home.Count() {
		return p.rest(now)
	}
	p.until = now + stayFor
	return p.keep(now, want)
}

// look notes where the engine is, where its ranks compute, and whether somebody's does so
// beside it.
func (p *placer) look(now int64, ranks []shm.Place, neighbours []core.Neighbour) {
	for len(p.stints) < len(ranks) {
		p.stints = append(p.stints, stint{})
	}
	p.seat = core.Seat{CPU: p.affinity.cpu()}
	for i, r := range ranks {
		s := &p.stints[i]
		if cpu, known := r.CPU(); known && r.Computes() {
			*s = stint{cpu, now}
		}
		if s.when != 0 && now-s.when < stayFor {
			p.seat.Computes.Add(s.cpu)
		}
	}
	p.beside = p.seat.Computes.Has(p.seat.CPU)
	for i := range neighbours {
		n := &neighbours[i]
		p.beside = p.beside || fresh(now, n) && n.Computes.Has(p.seat.CPU)
	}
}

func fresh(now int64, n *core.Neighbour) bool { return now-n.Heard < stayFor }

// knows reports whether a rank is known to compute on the engine's processor. Nobody looks
// when large messages have come to rest, and what was seen is forgotten.
func (p *placer) knows(now int64) bool { return p.beside && now-p.lookAt < stayFor }

// choose says where the thread should be: none or all is no choice.
func (p *placer) choose(now int64, neighbours []core.Neighbour) unix.CPUSet {
	want := p.home
	leave(&want, &p.seat.Computes)
	alone := want
	for i := range neighbours {
		n := &neighbours[i]
		if !fresh(now, n) {
			continue
		}
		leave(&want, &n.Computes)
		leave(&alone, &n.Computes)
		if n.CPU >= 0 && (n.CPU != p.seat.CPU || n.Peer < p.self) {
			alone.Clear(n.CPU)
		}
	}
	if alone.Count() > 0 {
		return alone
	}
	return want
}

// leave takes processors out of a set.
func leave(s *unix.CPUSet, which *core.Processors) {
	for i, word := range which {
		for ; word != 0; word &= word - 1 {
			s.Clear(64*i + bits.TrailingZeros64(word))
		}
	}
}

// rest lets the thread go where it may when there is no reason left.
func (p *placer) rest(now int64) error {
	if !p.kept || now < p.until {
		return nil
	}
	return p.keep(now, p.home)
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
	if cpu := p.affinity.cpu(); cpu != p.seat.CPU {
		p.moves++
		p.seat.CPU, p.beside = cpu, p.seat.Computes.Has(cpu)
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
