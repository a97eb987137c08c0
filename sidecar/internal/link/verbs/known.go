package verbs

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// known is this side's memory that the device knows, so that requests begin and end
// there: the engine's own, and that of applications. Of the latter package gather
// decides what is worth a registration, and keeps it (docs/reuse.md).
type known struct {
	own     own
	chooser *gather.Chooser
	trials  *reuse.Trials // of leaving the core's copy out
	begun   time.Time
	uses    []knownUse
	spare   []int32
	regions map[uint64]region // by Key of their registrations
	lost    error             // of the last registration that was refused
	refines bool              // costs were measured: what is observed refines them
	took    float64           // the registration that was made last, ns; 0: none since observed
	ending  float64           // what ending one takes, ns
	log     *slog.Logger
	warned  bool
}

// knownUse is memory in use by requests.
type knownUse struct {
	at    link.Ref
	addr  uint64 // of its first byte, for the device
	lkey  uint32
	refs  int32
	entry int // of own; -1: the lease's
	lease gather.Lease
}

// appBytes bounds the registrations of applications' memory that are kept: those
// that are sent from, and those that peers reach; where nothing else is said.
const appBytes = 512 << 20

func newKnown(n nic, memory func(link.Ref) []byte, c Config, peers regcache.Registrar) (*known, error) {
	ranks := max(c.Ranks, 1)
	k := &known{own: own{nic: n, memory: memory}, regions: map[uint64]region{}, log: c.Log, trials: reuse.NewTrials(ranks), begun: time.Now()}
	cfg := gather.Config{Sessions: ranks, Remote: &regcache.Config{PinnedBytes: cmp.Or(c.PinnedBytes, appBytes), TurnBytes: c.registerMax, MergeBytes: c.registerMax}}
	cfg.Local = *cfg.Remote
	if c.Reuse == bootstrap.ReuseAlways {
		cfg.Reuse.Frequent = -1 // and never stops to
	}
	var err error
	k.chooser, err = gather.New(cfg, k, peers)
	return k, err
}

// Register implements regcache.Registrar.
func (k *known) Register(ref link.Ref) (link.Key, error) {
	begin := time.Now()
	r, err := k.own.nic.register(k.own.memory(ref), 0, false)
	k.took = nanoseconds(time.Since(begin))
	if err != nil {
		k.took = 0
		k.lost = err
		k.refused(ref, err)
		return link.Key{}, err
	}
	key := link.Key{Key: uint64(r.lkey), Addr: r.addr}
	k.regions[key.Key] = r
	return key, nil
}

// refused says once that not all of the applications' memory can be registered.
func (k *known) refused(ref link.Ref, err error) {
	if !k.warned {
		k.warned = true
		k.log.Warn("an application's memory cannot be registered: what does not fit is copied, or goes in frames; raise the limit of locked memory (memlock)",
			"bytes", ref.Len, "cause", err)
	}
}

// Deregister implements regcache.Registrar.
func (k *known) Deregister(keys []link.Key) {
	begin := time.Now()
	for _, key := range keys {
		if r, ok := k.regions[key.Key]; ok { // else close has ended it
			_ = k.own.nic.deregister(r) // of a device that is gone there is nothing to end
			delete(k.regions, key.Key)
		}
	}
	k.ended(time.Since(begin) / time.Duration(len(keys)))
}

func (k *known) add(u knownUse) int32 {
	u.refs = 1
	if n := len(k.spare); n > 0 {
		at := k.spare[n-1]
		k.spare = k.spare[:n-1]
		k.uses[at] = u
		return at
	}
	k.uses = append(k.uses, u)
	return int32(len(k.uses) - 1)
}

func (k *known) leased(ref link.Ref, l gather.Lease) int32 {
	return k.add(knownUse{at: ref, addr: l.Key.Addr, lkey: uint32(l.Key.Key), entry: -1, lease: l})
}

func (k *known) held(ref link.Ref, entry int) int32 {
	k.own.hold(entry)
	addr, lkey := k.own.where(entry, ref)
	return k.add(knownUse{at: ref, addr: addr, lkey: lkey, entry: entry})
}

// choose takes ref, the payload of a frame, into use if it is to be gathered; -1: it
// is to be copied.
func (k *known) choose(ref link.Ref) int32 {
	if k.chooser.Knows(ref.Region) {
		l, ok := k.chooser.Choose(reuse.PathSend, ref)
		k.observed(ref.Len)
		if ok {
			return k.leased(ref, l)
		}
		return -1
	}
	return k.have(ref)
}

// gathers counts a use of ref, and says whether it will be gathered (choose).
func (k *known) gathers(ref link.Ref) bool {
	gathers := k.chooser.Gathers(reuse.PathSend, ref)
	k.observed(ref.Len)
	return gathers
}

// have takes ref into use if the device knows it; -1: it does not.
func (k *known) have(ref link.Ref) int32 {
	if k.chooser.Knows(ref.Region) {
		if l, ok := k.chooser.Have(ref); ok {
			return k.leased(ref, l)
		}
		return -1
	}
	if at := k.own.find(ref); at >= 0 {
		return k.held(ref, at)
	}
	return -1
}

// use makes the device know ref, and keeps it so until done.
func (k *known) use(ref link.Ref) (int32, error) {
	if k.chooser.Knows(ref.Region) {
		k.lost = nil
		l, ok := k.chooser.Pin(ref)
		if k.took = 0; ok { // it tells nothing of what is chosen: those are small
			return k.leased(ref, l), nil
		}
		if k.chooser.Later() {
			return -1, link.ErrLater
		}
		if k.lost != nil {
			return -1, fmt.Errorf("%w: %w", gather.ErrNoRoom, k.lost)
		}
		return -1, gather.ErrNoRoom
	}
	at, err := k.own.use(ref)
	if err != nil && k.chooser.Yield(ref.Len) { // for what nobody uses now
		at, err = k.own.use(ref)
	}
	if err != nil {
		return -1, err
	}
	defer k.own.done(at)
	return k.held(ref, at), nil
}

// again is one more use of what is in use.
func (k *known) again(n int32) { k.uses[n].refs++ }

// done ends a use.
func (k *known) done(n int32) {
	u := &k.uses[n]
	if u.refs--; u.refs > 0 {
		return
	}
	if u.entry >= 0 {
		k.own.done(u.entry)
	} else {
		k.chooser.Done(u.lease)
	}
	*u = knownUse{}
	k.spare = append(k.spare, n)
}

// where is the address of a part of what is in use, for the device.
func (k *known) where(n int32, part link.Ref) (addr uint64, lkey uint32) {
	u := &k.uses[n]
	return u.addr + part.Off - u.at.Off, u.lkey
}

// gone forgets the memory of a region, what a request under way uses of it after the
// end of that.
func (k *known) gone(r link.Region) {
	k.own.gone(r)
	k.chooser.RetireRegion(r)
}

// close ends all registrations.
func (k *known) close() {
	k.own.close()
	for _, r := range k.regions {
		_ = k.own.nic.deregister(r) // as above
	}
	k.regions = nil
}
