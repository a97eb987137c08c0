package shm

import "time"

// Place is whether a thread of an application waits (§8.1). The zero Place means that none does.
type Place uint32

// The flags of a Place. Its bits 0 to 15 and 30 were a processor, and that the application
// computes while messages are on their way; clients of earlier releases set them.
const (
	placeTimed Place = 1 << 29
	placeWaits Place = 1 << 31
)

// Waiting returns p with the flag that a thread is in a call that waits.
func (p Place) Waiting(on bool) Place { return p.flag(placeWaits, on) }

// Timed returns p with the flag that a thread is in a call that waits until a time limit.
func (p Place) Timed(on bool) Place { return p.flag(placeTimed, on) }

func (p Place) flag(f Place, on bool) Place {
	if on {
		return p | f
	}
	return p &^ f
}

// Waits reports whether a thread is in a call that waits.
func (p Place) Waits() bool { return p&placeWaits != 0 }

// WaitsForGood reports whether a thread is in a call that waits, and none is in one with a time limit.
func (p Place) WaitsForGood() bool { return p&(placeWaits|placeTimed) == placeWaits }

// MomentShift converts nanoseconds to a Moment, whose unit is 2^20 ns, about a millisecond.
const MomentShift = 20

// MomentFresh is the largest age of a Moment, in its units, of an application that still polls:
// 1.5 s. An application that waits polls every 100 ms if it gets CPU time.
const MomentFresh = 1430

// Moment is a time of CLOCK_MONOTONIC, which all processes of a machine share, in units of
// 2^20 ns modulo 2^32; 0: none.
type Moment uint32

// MomentOf returns the Moment of a time of that clock.
func MomentOf(clock time.Duration) Moment { return max(Moment(clock>>MomentShift), 1) }

// Fresh reports whether m was at most 1.5 s before now.
func (m Moment) Fresh(now Moment) bool { return m != 0 && now-m <= MomentFresh }

// Age returns how long before now m was.
func (m Moment) Age(now Moment) time.Duration { return time.Duration(now-m) << MomentShift }

// TagsOpenMPI is the layout of tags of Open MPI's mtl ofi: 30 bits communicator, 2 bits for Open MPI
// itself, 32 bits tag, which is negative for a collective (§8.2).
const TagsOpenMPI = 1

// TagsMPICH is the layout of tags of MPICH 5's netmod ofi: 13 bits for MPICH itself, 20 bits context,
// of which the lowest is 1 for a collective, 31 bits tag (§8.2).
const TagsMPICH = 2

// OfAccess reports whether a context carries requests for accesses to memory of other ranks, or
// the answers to them (§8.2).
func OfAccess(context uint32) bool { return context >= ProviderContext && context&2 != 0 }
