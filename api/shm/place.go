package shm

import "time"

// Place is where an application's thread is, whether it waits there, and
// whether it computes while messages are on their way (§8.1). The zero Place
// says nothing.
type Place uint32

// The parts of a Place: the number of the processor plus one and three flags.
const (
	placeCPU      Place = 1<<16 - 1
	placeTimed    Place = 1 << 29
	placeComputes Place = 1 << 30
	placeWaits    Place = 1 << 31
)

// On is p on a processor; negative: unknown.
func (p Place) On(cpu int) Place { return p&^placeCPU | Place(cpu+1)&placeCPU }

// Waiting is p inside a waiting call, or not.
func (p Place) Waiting(on bool) Place { return p.flag(placeWaits, on) }

// Timed is p inside a waiting call that ends at a time, or in none.
func (p Place) Timed(on bool) Place { return p.flag(placeTimed, on) }

// Computing is p of an application that computed before it waited last, or
// did not.
func (p Place) Computing(on bool) Place { return p.flag(placeComputes, on) }

func (p Place) flag(f Place, on bool) Place {
	if on {
		return p | f
	}
	return p &^ f
}

// Waits reports whether the thread is inside a waiting call.
func (p Place) Waits() bool { return p&placeWaits != 0 }

// WaitsForGood reports whether the thread is inside a waiting call, and in none
// that ends at a time.
func (p Place) WaitsForGood() bool { return p&(placeWaits|placeTimed) == placeWaits }

// Computes reports whether it computes while messages are on their way.
func (p Place) Computes() bool { return p&placeComputes != 0 }

// CPU is the processor; false: unknown.
func (p Place) CPU() (int, bool) {
	n := int(p & placeCPU)
	return n - 1, n > 0
}

// MomentShift makes a Moment of nanoseconds: its unit is 2^20 of them, about a millisecond.
const MomentShift = 20

// MomentFresh is how old a Moment may be, in its units, of an application that still looks:
// 1.5 s. One that looks does so every 100 ms, when it gets a processor.
const MomentFresh = 1430

// Moment is a time of CLOCK_MONOTONIC, which all processes of a machine share, in units of
// 2^20 ns modulo 2^32; 0: none.
type Moment uint32

// MomentOf is the moment of a reading of that clock.
func MomentOf(clock time.Duration) Moment { return max(Moment(clock>>MomentShift), 1) }

// Fresh reports that m was at most 1.5 s before now.
func (m Moment) Fresh(now Moment) bool { return m != 0 && now-m <= MomentFresh }

// TagsOpenMPI is the layout of tags of Open MPI's mtl ofi: 30 bits communicator, 2 bits of its
// own, 32 bits tag, below 0 that of a collective (§8.2).
const TagsOpenMPI = 1

// TagsMPICH is the layout of tags of MPICH 5's netmod ofi: 13 bits of its own, 20 bits context, of
// which the lowest is 1 in collectives, 31 bits tag (§8.2).
const TagsMPICH = 2
