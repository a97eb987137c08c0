package verbs

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// ownRegs are the registrations of the engine's memory: the ranges that operations named.
// Registrations that are not in use are retained for later operations, up to a bound.
type ownRegs struct {
	nic     nic
	memory  func(link.Ref) []byte
	entries []entry
	bytes   uint64
	clock   uint64
}

// entry is one registration.
type entry struct {
	at   link.Ref
	r    region
	uses int    // number of requests that use it
	last uint64 // value of clock at the last use
	used bool   // the entry is not free
	over bool   // its memory will be unmapped: drop it after the last use
}

// Bounds of retained registrations.
const (
	ownMax   = 64        // most registrations: find searches all of them
	ownBytes = 512 << 20 // bytes of locked memory
)

// find returns the index of an entry that covers ref, or -1.
func (k *ownRegs) find(ref link.Ref) int {
	for i := range k.entries {
		e := &k.entries[i]
		if e.used && !e.over && e.at.Region == ref.Region && e.at.Off <= ref.Off && ref.Off+ref.Len <= e.at.Off+e.at.Len {
			return i
		}
	}
	return -1
}

// use registers ref if necessary, and begins a use, until releaseUse.
func (k *ownRegs) use(ref link.Ref) (n int, err error) {
	k.clock++
	if n = k.find(ref); n < 0 {
		if n, err = k.add(ref); err != nil {
			// The limit of locked memory may be reached: free unused registrations.
			if !k.shrink(0) {
				return -1, err
			}
			if n, err = k.add(ref); err != nil {
				return -1, err
			}
		}
	}
	k.retain(n)
	return n, nil
}

// retain begins one more use of an entry.
func (k *ownRegs) retain(n int) {
	k.entries[n].uses++
	k.entries[n].last = k.clock
}

// address returns the address and the lkey of ref for the device.
func (k *ownRegs) address(n int, ref link.Ref) (addr uint64, lkey uint32) {
	e := &k.entries[n]
	return e.r.addr + ref.Off - e.at.Off, e.r.lkey
}

func (k *ownRegs) add(ref link.Ref) (int, error) {
	r, err := k.nic.register(k.memory(ref), 0, false)
	if err != nil {
		return -1, err
	}
	e := entry{at: ref, r: r, used: true}
	k.bytes += ref.Len
	for i := range k.entries {
		if !k.entries[i].used {
			k.entries[i] = e
			return i, nil
		}
	}
	k.entries = append(k.entries, e)
	return len(k.entries) - 1, nil
}

// releaseUse ends a use, and drops registrations beyond the bounds.
func (k *ownRegs) releaseUse(n int) {
	e := &k.entries[n]
	e.uses--
	if e.over && e.uses == 0 {
		k.forget(n)
		return
	}
	if len(k.entries) > ownMax || k.bytes > ownBytes {
		k.shrink(ownBytes)
	}
}

// shrink drops unused registrations, the least recently used first, until at most most
// bytes and ownMax entries remain. It reports whether it dropped any.
func (k *ownRegs) shrink(most uint64) (some bool) {
	for {
		oldest, n := -1, 0
		for i := range k.entries {
			e := &k.entries[i]
			if !e.used {
				continue
			}
			n++
			if e.uses == 0 && (oldest < 0 || e.last < k.entries[oldest].last) {
				oldest = i
			}
		}
		if oldest < 0 || k.bytes <= most && n <= ownMax {
			return some
		}
		k.forget(oldest)
		some = true
	}
}

func (k *ownRegs) forget(n int) {
	e := &k.entries[n]
	k.bytes -= e.at.Len
	_ = k.nic.deregister(e.r) // errors of a lost device say nothing
	*e = entry{}
	for len(k.entries) > 0 && !k.entries[len(k.entries)-1].used {
		k.entries = k.entries[:len(k.entries)-1]
	}
}

// dropRegion drops the registrations of a region, those in use after their last use.
func (k *ownRegs) dropRegion(r link.Region) {
	for i := len(k.entries) - 1; i >= 0; i-- {
		if i >= len(k.entries) || !k.entries[i].used || k.entries[i].at.Region != r {
			continue
		}
		if k.entries[i].over = k.entries[i].uses > 0; !k.entries[i].over {
			k.forget(i)
		}
	}
}

func (k *ownRegs) close() {
	for i := len(k.entries) - 1; i >= 0; i-- {
		if i < len(k.entries) && k.entries[i].used {
			k.forget(i)
		}
	}
}
