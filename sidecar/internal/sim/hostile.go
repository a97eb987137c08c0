package sim

import "github.com/outrigger-hpc/outrigger/api/shm"

// attacks are descriptors that no correct client writes. Each must end the session of the
// rank that wrote it, and the failure must name that rank.
var attacks = []func(a *app) []shm.Descriptor{
	func(*app) []shm.Descriptor { return []shm.Descriptor{{Op: 200}} },
	func(*app) []shm.Descriptor {
		return alone(outside(shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena}))
	},
	func(*app) []shm.Descriptor {
		return alone(outside(shm.Descriptor{Op: shm.OpRecv, Class: shm.ClassSlab}))
	},
	func(*app) []shm.Descriptor {
		return alone(outside(shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}))
	},
	func(*app) []shm.Descriptor {
		return alone(wrapping(shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena}))
	},
	func(*app) []shm.Descriptor { return []shm.Descriptor{{Op: shm.OpSend, Peer: 1 << 20}} },
	func(*app) []shm.Descriptor { return []shm.Descriptor{{Op: shm.OpSend, Class: 77}} },
	func(*app) []shm.Descriptor {
		return []shm.Descriptor{{Op: shm.OpSend, Class: shm.ClassInline, InlineLen: 200}}
	},
	func(*app) []shm.Descriptor {
		return []shm.Descriptor{{Op: shm.OpRecv, Class: shm.ClassInline, Req: shm.MaxRequests + 5, Tag: tagNeverSent}}
	},
	func(a *app) []shm.Descriptor { // a request number twice
		d := shm.Descriptor{Op: shm.OpRecv, Class: shm.ClassInline, Req: shm.MaxRequests - 1, Peer: a.rank, Tag: tagNeverSent}
		return []shm.Descriptor{d, d}
	},
}

func alone(d shm.Descriptor) []shm.Descriptor { return []shm.Descriptor{d} }

// outside names memory past the end of the memory of its class.
func outside(d shm.Descriptor) shm.Descriptor {
	d.Req = shm.MaxRequests - 2
	d.SetBody(arenaBytes-8, 4096, 0, 0)
	return d
}

// wrapping names memory whose end is before its beginning.
func wrapping(d shm.Descriptor) shm.Descriptor {
	d.Req = shm.MaxRequests - 2
	d.SetBody(^uint64(0)-8, 64, 0, 0)
	return d
}

// attack submits descriptors of an attack, and reports whether all of them are submitted.
func (a *app) attack() (bool, error) {
	if a.unsubmitted == nil {
		a.unsubmitted = attacks[a.w.rng.IntN(len(attacks))](a)
		if x := a.exposures; x != nil && x.rng.IntN(2) == 0 {
			a.unsubmitted = exposedAttacks[x.rng.IntN(len(exposedAttacks))]
		}
	}
	for len(a.unsubmitted) > 0 {
		if ok, err := a.submit.Push(&a.unsubmitted[0]); !ok || err != nil {
			return false, err
		}
		a.unsubmitted = a.unsubmitted[1:]
	}
	return true, nil
}
