package verbs

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// own is the engine's memory that the device knows, so that operations begin and end
// there: the ranges that operations named. What is not in use stays for the next
// operation, up to a bound.
type own struct {
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
	uses int
	last uint64
	used bool // the entry
	over bool // its memory is not used any more: to be forgotten after the last use
}

// Bounds of what is kept for later.
const (
	knownMax   = 64
	knownBytes = 512 << 20
)

// find is the entry that has all of ref, or -1.
func (k *own) find(ref link.Ref) int {
	for i := range k.entries {
		e := &k.entries[i]
		if e.used && !e.over && e.at.Region == ref.Region && e.at.Off <= ref.Off && ref.Off+ref.Len <= e.at.Off+e.at.Len {
			return i
		}
	}
	return -1
}

// use makes ref known, and keeps it so until done.
func (k *own) use(ref link.Ref) (n int, err error) {
	k.clock++
	if n = k.find(ref); n < 0 {
		if n, err = k.add(ref); err != nil {
			// Room may be all that is missing: the limit of locked memory.
			if !k.shrink(0) {
				return -1, err
			}
			if n, err = k.add(ref); err != nil {
				return -1, err
			}
		}
	}
	k.hold(n)
	return n, nil
}

// hold is one more use of an entry.
func (k *own) hold(n int) {
	k.entries[n].uses++
	k.entries[n].last = k.clock
}

// where is the address of ref for the device.
func (k *own) where(n int, ref link.Ref) (addr uint64, lkey uint32) {
	e := &k.entries[n]
	return e.r.addr + ref.Off - e.at.Off, e.r.lkey
}

func (k *own) add(ref link.Ref) (int, error) {
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

// done ends a use.
func (k *own) done(n int) {
	e := &k.entries[n]
	e.uses--
	if e.over && e.uses == 0 {
		k.forget(n)
		return
	}
	if len(k.entries) > knownMax || k.bytes > knownBytes {
		k.shrink(knownBytes)
	}
}

// shrink forgets what is not in use, the longest unused first, until no more than
// most bytes and knownMax entries are left. It reports whether it forgot any.
func (k *own) shrink(most uint64) (some bool) {
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
		if oldest < 0 || k.bytes <= most && n <= knownMax {
			return some
		}
		k.forget(oldest)
		some = true
	}
}

func (k *own) forget(n int) {
	e := &k.entries[n]
	k.bytes -= e.at.Len
	_ = k.nic.deregister(e.r) // of a device that is gone there is nothing to end
	*e = entry{}
	for len(k.entries) > 0 && !k.entries[len(k.entries)-1].used {
		k.entries = k.entries[:len(k.entries)-1]
	}
}

// gone forgets the memory of a region, what a request under way uses of it after
// the end of that.
func (k *own) gone(r link.Region) {
	for i := len(k.entries) - 1; i >= 0; i-- {
		if i >= len(k.entries) || !k.entries[i].used || k.entries[i].at.Region != r {
			continue
		}
		if k.entries[i].over = k.entries[i].uses > 0; !k.entries[i].over {
			k.forget(i)
		}
	}
}

func (k *own) close() {
	for i := len(k.entries) - 1; i >= 0; i-- {
		if i < len(k.entries) && k.entries[i].used {
			k.forget(i)
		}
	}
}
