package regcache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

var errNoMemory = errors.New("cannot allocate memory")

// kernel is a Registrar that pins up to a limit, and records the requests.
type kernel struct {
	limit, pinned uint64
	next          uint64
	again         bool // keys of registrations that have ended are reused
	held          map[uint64]link.Ref
	log           []string
	fault         error
}

func newKernel(limit uint64) *kernel { return &kernel{limit: limit, held: map[uint64]link.Ref{}} }

func (k *kernel) Register(ref link.Ref) (link.Key, error) {
	if k.pinned+ref.Len > k.limit {
		k.log = append(k.log, fmt.Sprintf("refuse %v", ref))
		return link.Key{}, errNoMemory
	}
	k.next++
	key := k.next
	if k.again {
		for key = 1; k.held[key].Len != 0; {
			key++
		}
	}
	k.pinned += ref.Len
	k.held[key] = ref
	k.log = append(k.log, fmt.Sprintf("pin %v", ref))
	return link.Key{Key: key, Addr: k.next<<40 + ref.Off}, nil
}

func (k *kernel) Deregister(keys []link.Key) {
	var gone []string
	for _, key := range keys {
		ref, ok := k.held[key.Key]
		if !ok {
			k.fault = fmt.Errorf("key %d is deregistered and not registered", key.Key)
		}
		delete(k.held, key.Key)
		k.pinned -= ref.Len
		gone = append(gone, fmt.Sprint(ref))
	}
	slices.Sort(gone) // their order within a call does not matter
	k.log = append(k.log, fmt.Sprintf("unpin %v", gone))
}

// obvious is the same cache as a list that is searched from end to end.
type obvious struct {
	cfg     Config
	to      *kernel
	size    map[link.Region]uint64
	owner   map[link.Region]Session
	list    []*plain
	now     int // number of releases: the time of the last use
	limit   uint64
	served  int
	hold    int
	backoff int
}

type plain struct {
	link.Ref
	key    link.Key
	refs   int
	last   int
	hidden bool
	dead   bool
}

func newObvious(cfg Config, to *kernel) *obvious {
	if err := cfg.setDefaults(); err != nil {
		panic(err)
	}
	return &obvious{cfg: cfg, to: to, limit: cfg.PinnedBytes, size: map[link.Region]uint64{}, owner: map[link.Region]Session{}}
}

func (o *obvious) sum(s Session, of func(*plain) bool) (n uint64) {
	for _, r := range o.list {
		if o.owner[r.Region] == s && !r.dead && of(r) {
			n += r.Len
		}
	}
	return n
}

func used(r *plain) bool { return r.refs > 0 }

// over reports whether a session has its share of bytes or of registrations in use.
func (o *obvious) over(s Session, n uint64) bool {
	count := 0
	for _, r := range o.list {
		if o.owner[r.Region] == s && !r.dead && used(r) {
			count++
		}
	}
	return o.sum(s, used)+n > o.share() || count >= max(o.cfg.Entries/o.cfg.Sessions, 1)
}

func (o *obvious) share() uint64 {
	if o.cfg.SessionBytes != 0 {
		return min(o.cfg.SessionBytes, o.limit)
	}
	return o.limit / uint64(o.cfg.Sessions)
}

func (o *obvious) overlapping(r link.Ref) (found []*plain) {
	for _, x := range o.list {
		if !x.hidden && !x.dead && x.Region == r.Region && x.Off < r.Off+r.Len && r.Off < x.Off+x.Len {
			found = append(found, x)
		}
	}
	return found
}

// furthest returns the registration that covers ref's first byte, and reaches furthest.
func (o *obvious) furthest(ref link.Ref) (best *plain) {
	for _, x := range o.overlapping(link.Ref{Region: ref.Region, Off: ref.Off, Len: 1}) {
		if best == nil || x.Off+x.Len > best.Off+best.Len {
			best = x
		}
	}
	return best
}

func (o *obvious) acquire(ref link.Ref) *plain {
	s := o.owner[ref.Region]
	if x := o.furthest(ref); x != nil && ref.Off+ref.Len <= x.Off+x.Len {
		if x.refs == 0 && o.over(s, x.Len) {
			o.tryLimit()
			return nil
		}
		x.refs++
		return x
	}
	o.tryLimit()
	if o.hold > 0 {
		o.hold--
		return nil
	}
	page := o.cfg.PageBytes
	pages := link.Ref{Region: ref.Region, Off: ref.Off / page * page}
	pages.Len = min((ref.Off+ref.Len+page-1)/page*page, o.size[ref.Region]) - pages.Off
	if o.over(s, pages.Len) {
		return nil
	}
	whole := o.union(s, pages)
	x := o.register(s, whole)
	if x == nil && whole != pages {
		x = o.register(s, pages)
	}
	return x
}

// union hides the registrations that a new one for pages replaces, and returns the range to
// register.
func (o *obvious) union(s Session, pages link.Ref) link.Ref {
	whole := o.whole(s, pages)
	old := o.overlapping(whole)
	for _, x := range old {
		x.hidden = both(x, whole) > x.Len/2
	}
	o.bury(func(x *plain) bool { return slices.Contains(old, x) && x.hidden && x.refs == 0 })
	return whole
}

func both(x *plain, r link.Ref) uint64 { return min(x.Off+x.Len, r.Off+r.Len) - max(x.Off, r.Off) }

func (o *obvious) whole(s Session, pages link.Ref) link.Ref {
	page, most := o.cfg.PageBytes, min(o.cfg.MergeBytes, o.share()/8)
	low, high, largest := o.extent(pages, func(x *plain, b uint64) bool { return b > x.Len/8 || b > pages.Len/8 })
	if high-low > most {
		low, high, largest = o.extent(pages, func(x *plain, b uint64) bool { return b > x.Len/2 })
	}
	if largest == 0 || high-low > most {
		return pages
	}
	extra := min((high-low)/2, most-(high-low)) / page * page
	up := largest > pages.Len/2 && high == pages.Off+pages.Len && low < pages.Off
	down := largest > pages.Len/2 && low == pages.Off && high > pages.Off+pages.Len
	for end := high + extra; up && high < min(end, o.size[pages.Region]) && len(o.overlapping(link.Ref{Region: pages.Region, Off: high, Len: 1})) == 0; {
		high = min(high+page, o.size[pages.Region])
	}
	for end := low - min(extra, low); down && low > end && len(o.overlapping(link.Ref{Region: pages.Region, Off: low - 1, Len: 1})) == 0; {
		low -= page
	}
	if o.over(s, high-low) {
		return pages
	}
	return link.Ref{Region: pages.Region, Off: low, Len: high - low}
}

// extent returns the range of pages and of the registrations that overlap them by enough
// bytes.
func (o *obvious) extent(pages link.Ref, enough func(x *plain, b uint64) bool) (low, high, largest uint64) {
	low, high = pages.Off, pages.Off+pages.Len
	for _, x := range o.overlapping(pages) {
		if enough(x, both(x, pages)) {
			low, high, largest = min(low, x.Off), max(high, x.Off+x.Len), max(largest, x.Len)
		}
	}
	return low, high, largest
}

// bury deregisters the registrations that which selects, in one call.
func (o *obvious) bury(which func(*plain) bool) (n int) {
	var keys []link.Key
	for _, x := range o.list {
		if !x.dead && which(x) {
			x.dead = true
			keys = append(keys, x.key)
		}
	}
	if len(keys) > 0 {
		o.to.Deregister(keys)
	}
	o.list = slices.DeleteFunc(o.list, func(x *plain) bool { return x.dead && x.refs == 0 })
	return len(keys)
}

func (o *obvious) pinned() (n uint64, entries int) {
	for _, x := range o.list {
		if !x.dead {
			n += x.Len
			entries++
		}
	}
	return n, entries
}

func (o *obvious) room(s Session, n uint64) bool {
	going := map[*plain]bool{}
	state := func() (fits, nearlyFull bool) {
		pinned, entries := o.pinned()
		for x := range going {
			pinned -= x.Len
			entries--
		}
		return entries < o.cfg.Entries && pinned+n <= o.limit,
			entries >= o.cfg.Entries-o.cfg.Entries/16 || pinned+n > o.limit-o.limit/16
	}
	short := func() (entries bool) {
		pinned, live := o.pinned()
		for x := range going {
			pinned -= x.Len
			live--
		}
		return live >= o.cfg.Entries || live >= o.cfg.Entries-o.cfg.Entries/16 && pinned+n <= o.limit
	}
	rest := func(s Session, entries bool) (sum uint64, oldest *plain) {
		for _, x := range o.list {
			if o.owner[x.Region] != s || x.dead || going[x] {
				continue
			}
			if entries {
				sum++
			} else {
				sum += x.Len
			}
			if x.refs == 0 && (oldest == nil || x.last < oldest.last) {
				oldest = x
			}
		}
		return sum, oldest
	}
	fits, _ := state()
	busy, busyEntries := n, 0
	for _, x := range o.list {
		if !x.dead && used(x) {
			busy += x.Len
			busyEntries++
		}
	}
	if !fits && (busy > o.limit || busyEntries >= o.cfg.Entries) {
		return false
	}
	for !fits || len(going) > 0 {
		f, nearlyFull := state()
		if f && (len(going) >= o.cfg.Batch || !nearlyFull) {
			break
		}
		entries, more, share := short(), n, o.share()
		if entries {
			more, share = 1, uint64(max(o.cfg.Entries/o.cfg.Sessions, 1))
		}
		mine, victim := rest(s, entries)
		if victim == nil || mine+more <= share {
			victim = nil
			most := uint64(0)
			for i := range Session(o.cfg.Sessions) {
				sum, oldest := rest(i, entries)
				if oldest == nil || sum <= share && i != s && mine+more > share {
					continue
				}
				if victim == nil || sum > most {
					victim, most = oldest, sum
				}
			}
		}
		if victim == nil {
			break
		}
		going[victim] = true
		fits = f
	}
	o.bury(func(x *plain) bool { return going[x] })
	fits, _ = state2(o, n)
	return fits
}

func state2(o *obvious, n uint64) (bool, int) {
	pinned, entries := o.pinned()
	return entries < o.cfg.Entries && pinned+n <= o.limit, entries
}

// tryLimit counts a use that is not a hit, and raises a learnt limit now and then.
func (o *obvious) tryLimit() {
	if o.limit < o.cfg.PinnedBytes {
		if o.served++; o.served >= probe {
			o.served = 0
			o.limit = min(o.cfg.PinnedBytes, o.limit+max(o.limit/16, o.cfg.PageBytes))
		}
	}
}

func (o *obvious) register(s Session, ref link.Ref) *plain {
	for range triesMax {
		if !o.room(s, ref.Len) {
			return nil
		}
		key, err := o.to.Register(ref)
		if err == nil {
			o.backoff, o.hold = 0, 0
			x := &plain{Ref: ref, key: key, refs: 1}
			o.list = append(o.list, x)
			return x
		}
		pinned, _ := o.pinned()
		if pinned == 0 {
			break
		}
		o.limit = min(o.limit, max(pinned+ref.Len-o.cfg.PageBytes, o.cfg.PageBytes))
		o.served = 0
	}
	o.backoff = min(max(2*o.backoff, 1), holdMax)
	o.hold = o.backoff
	return nil
}

func (o *obvious) release(x *plain) {
	o.now++
	x.refs--
	if x.refs == 0 {
		x.last = o.now
	}
	o.bury(func(y *plain) bool { return y.hidden && y.refs == 0 })
}

func (o *obvious) revoke(x *plain) {
	o.bury(func(y *plain) bool { return y == x })
	o.release(x)
}

func (o *obvious) invalidate(ref link.Ref) (busy int) {
	page := o.cfg.PageBytes
	to := (ref.Off + ref.Len + page - 1) / page * page
	ref.Off = ref.Off / page * page
	ref.Len = to - ref.Off
	for _, x := range o.overlapping(ref) {
		x.hidden = true
	}
	o.bury(func(x *plain) bool { return x.hidden && x.refs == 0 })
	for _, x := range o.list {
		if x.hidden && !x.dead && x.Region == ref.Region && x.Off < ref.Off+ref.Len && ref.Off < x.Off+x.Len {
			busy++
		}
	}
	return busy
}

func (o *obvious) drop(r link.Region) {
	o.bury(func(x *plain) bool { return x.Region == r })
}
