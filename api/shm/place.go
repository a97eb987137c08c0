package shm

import "time"

// Place says whether an application's thread waits (§8.1). The zero Place says that it does not.
type Place uint32

// The flags of a Place. Its bits 0 to 15 and 30 were a processor, and that the application
// computes while messages are on their way; clients of earlier releases set them.
const (
	placeTimed Place = 1 << 29
	placeWaits Place = 1 << 31
)

// Waiting is p inside a waiting call, or not.
func (p Place) Waiting(on bool) Place { return p.flag(placeWaits, on) }

// Timed is p inside a waiting call that ends at a time, or in none.
func (p Place) Timed(on bool) Place { return p.flag(placeTimed, on) }

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
