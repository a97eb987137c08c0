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

// regs are the registrations of this side's memory for its own requests: the engine's
// memory, and that of applications. For the latter package gather decides which buffers
// are worth a registration, and caches it (docs/reuse.md).
type regs struct {
	own       ownRegs
	chooser   *gather.Chooser
	trials    *reuse.Trials // trials of gathering instead of the core's copy
	start     time.Time
	uses      []regUse
	spare     []int32
	regions   map[uint64]region // regions by the key of their registration
	lastError error             // error of the last registration that was refused
	refines   bool              // costs were measured, and observe refines them
	lastCost  float64           // cost of the last registration, ns; 0: none since observe
	endCost   float64           // cost of ending a registration, ns
	log       *slog.Logger
	warned    bool
}

// regUse is a use of registered memory by requests.
type regUse struct {
	at    link.Ref
	addr  uint64 // address of the first byte, for the device
	lkey  uint32
	refs  int32
	entry int // index in own; -1: the memory is the lease's
	lease gather.Lease
}

// appBytes is the default bound of the cached registrations of applications' memory: of
// those for sends, and separately of those for peers.
const appBytes = 512 << 20

func newRegs(n nic, memory func(link.Ref) []byte, c Config, peers regcache.Registrar) (*regs, error) {
	ranks := max(c.Ranks, 1)
	k := &regs{own: ownRegs{nic: n, memory: memory}, regions: map[uint64]region{}, log: c.Log, trials: reuse.NewTrials(ranks), start: time.Now()}
	cfg := gather.Config{Sessions: ranks, Remote: &regcache.Config{PinnedBytes: cmp.Or(c.PinnedBytes, appBytes), TurnBytes: c.registerMax, MergeBytes: c.registerMax}}
	cfg.Local = *cfg.Remote
	if c.Reuse == bootstrap.ReuseAlways { // and never stop gathering
		cfg.Reuse.Frequent = -1 // and never stops to
	}
	var err error
	k.chooser, err = gather.New(cfg, k, peers)
	return k, err
}

// Register implements regcache.Registrar.
func (k *regs) Register(ref link.Ref) (link.Key, error) {
	begin := time.Now()
	r, err := k.own.nic.register(k.own.memory(ref), 0, false)
	k.lastCost = nanoseconds(time.Since(begin))
	if err != nil {
		k.lastCost = 0
		k.lastError = err
		k.warnRefused(ref, err)
		return link.Key{}, err
	}
	key := link.Key{Key: uint64(r.lkey), Addr: r.addr}
	k.regions[key.Key] = r
	return key, nil
}

// warnRefused logs once that not all of the applications' memory can be registered.
func (k *regs) warnRefused(ref link.Ref, err error) {
	if !k.warned {
		k.warned = true
		k.log.Warn("an application's memory cannot be registered: it is copied, or sent in frames; raise the limit of locked memory (memlock)",
			"bytes", ref.Len, "cause", err)
	}
}

// Deregister implements regcache.Registrar.
func (k *regs) Deregister(keys []link.Key) {
	begin := time.Now()
	for _, key := range keys {
		if r, ok := k.regions[key.Key]; ok { // otherwise close has ended it
			_ = k.own.nic.deregister(r) // errors of a lost device say nothing
			delete(k.regions, key.Key)
		}
	}
	k.observeEnd(time.Since(begin) / time.Duration(len(keys)))
}

func (k *regs) add(u regUse) int32 {
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

func (k *regs) addLease(ref link.Ref, l gather.Lease) int32 {
	return k.add(regUse{at: ref, addr: l.Key.Addr, lkey: uint32(l.Key.Key), entry: -1, lease: l})
}

func (k *regs) addOwn(ref link.Ref, entry int) int32 {
	k.own.retain(entry)
	addr, lkey := k.own.address(entry, ref)
	return k.add(regUse{at: ref, addr: addr, lkey: lkey, entry: entry})
}

// choose begins a use of ref, the payload of a frame, if it is to be gathered, and
// returns -1 if it is to be copied.
func (k *regs) choose(ref link.Ref) int32 {
	if k.chooser.Knows(ref.Region) {
		l, ok := k.chooser.Choose(reuse.PathSend, ref)
		k.observe(ref.Len)
		if ok {
			return k.addLease(ref, l)
		}
		return -1
	}
	return k.have(ref)
}

// gathers counts a use of ref, and reports whether choose will gather it.
func (k *regs) gathers(ref link.Ref) bool {
	gathers := k.chooser.Gathers(reuse.PathSend, ref)
	k.observe(ref.Len)
	return gathers
}

// have begins a use of ref if it is registered, and returns -1 otherwise.
func (k *regs) have(ref link.Ref) int32 {
	if k.chooser.Knows(ref.Region) {
		if l, ok := k.chooser.Have(ref); ok {
			return k.addLease(ref, l)
		}
		return -1
	}
	if at := k.own.find(ref); at >= 0 {
		return k.addOwn(ref, at)
	}
	return -1
}

// use registers ref if necessary, and begins a use, until releaseUse.
func (k *regs) use(ref link.Ref) (int32, error) {
	if k.chooser.Knows(ref.Region) {
		k.lastError = nil
		l, ok := k.chooser.Pin(ref)
		if k.lastCost = 0; ok { // Pin is for large messages, which the costs do not describe
			return k.addLease(ref, l), nil
		}
		if k.chooser.Later() {
			return -1, link.ErrLater
		}
		if k.lastError != nil {
			return -1, fmt.Errorf("%w: %w", gather.ErrNoRoom, k.lastError)
		}
		return -1, gather.ErrNoRoom
	}
	at, err := k.own.use(ref)
	if err != nil && k.chooser.Yield(ref.Len) { // ends unused registrations of applications
		at, err = k.own.use(ref)
	}
	if err != nil {
		return -1, err
	}
	defer k.own.releaseUse(at)
	return k.addOwn(ref, at), nil
}

// retain adds a user to a use.
func (k *regs) retain(n int32) { k.uses[n].refs++ }

// releaseUse ends a use.
func (k *regs) releaseUse(n int32) {
	u := &k.uses[n]
	if u.refs--; u.refs > 0 {
		return
	}
	if u.entry >= 0 {
		k.own.releaseUse(u.entry)
	} else {
		k.chooser.Done(u.lease)
	}
	*u = regUse{}
	k.spare = append(k.spare, n)
}

// address returns the address and the lkey of a part of memory in use, for the device.
func (k *regs) address(n int32, part link.Ref) (addr uint64, lkey uint32) {
	u := &k.uses[n]
	return u.addr + part.Off - u.at.Off, u.lkey
}

// dropRegion drops the registrations of a region, those in use after their last use.
func (k *regs) dropRegion(r link.Region) {
	k.own.dropRegion(r)
	k.chooser.RetireRegion(r)
}

// close ends all registrations.
func (k *regs) close() {
	k.own.close()
	for _, r := range k.regions {
		_ = k.own.nic.deregister(r) // errors of a lost device say nothing
	}
	k.regions = nil
}
