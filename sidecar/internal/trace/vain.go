package trace

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Probe is a probe that has found nothing, and that its rank repeats.
type Probe struct {
	Peer, Context uint32
	Tag, Ignore   uint64
	Claims        bool  // the probe claims the message that it finds
	Since         int64 // when the rank first called it
}

func (p *Probe) same(o *Probe) bool {
	return p.Tag == o.Tag && p.Peer == o.Peer && p.Context == o.Context && p.Ignore == o.Ignore && p.Claims == o.Claims
}

// vainKept is how many different probes of a rank are kept: one loop polls for few messages.
const vainKept = 4

// vain are the calls of a rank since it last began or ended another one, which may repeat earlier
// ones without an effect: probes in vain, and messages of accesses to memory of other ranks.
type vain struct {
	last    int64  // when one of them last began or ended; 0: there is none, and the other fields but asked and served mean nothing
	ended   uint64 // number of them that have ended
	asked   Probe  // the probe that the rank has called last, of which the end has not been recorded
	probes  [vainKept]Probe
	kept    int    // number of probes
	more    bool   // there were other ones
	reached int64  // when the rank last requested an access; 0: it has not
	target  uint32 // of that access
	served  uint64 // accesses to memory of this rank that its process has answered
}

// begin begins a record if there is none.
func (v *vain) begin(now int64) {
	if v.last == 0 {
		v.kept, v.more, v.reached = 0, false, 0
	}
	v.last = now
}

// reach records that a message of an access begins.
func (v *vain) reach(now int64, d *shm.Descriptor) {
	v.begin(now)
	switch {
	case d.Op != shm.OpSend:
	case d.Context&1 == 0: // a request
		v.reached, v.target = now, d.Peer
	default:
		v.served++
	}
}

// end records that one has ended.
func (v *vain) end(now int64) {
	v.begin(now)
	v.ended++
}

// add records a probe in vain.
func (v *vain) add(now int64) {
	v.end(now)
	for i := range v.probes[:v.kept] {
		if v.probes[i].same(&v.asked) {
			return
		}
	}
	if v.kept == vainKept {
		v.more = true
		return
	}
	v.probes[v.kept] = v.asked
	v.kept++
}

// ask records the call of a probe.
func (v *vain) ask(now int64, d *shm.Descriptor) {
	v.asked = Probe{Peer: d.Peer, Context: d.Context, Tag: d.Tag, Ignore: d.Aux(), Claims: d.Op == shm.OpMprobe, Since: now}
}

// Vain returns how many probes in vain and messages of accesses have ended since the rank last began or
// ended another call.
func (t *Times) Vain() uint64 { return t.vain.ended }

// VainProbes returns these probes, if the rank has called one, or an access, within the given time; more reports
// whether there were other ones.
func (t *Times) VainProbes(now, within int64) (probes []Probe, more bool) {
	if t.vain.last == 0 || now-t.vain.last > within {
		return nil, false
	}
	return slices.Clone(t.vain.probes[:t.vain.kept]), t.vain.more
}

// Accesses reports whether the rank has requested accesses within the given time, and has begun and
// ended no other call, and returns the target of the last one.
func (t *Times) Accesses(now, within int64) (target uint32, does bool) {
	return t.vain.target, t.vain.last != 0 && t.vain.reached != 0 && now-t.vain.reached <= within
}

// Quiet returns how long no call of the rank has begun or ended. known: it is known for how long the
// application has done nothing but repeat calls, which is still; then probes in vain and messages
// of accesses do not count as calls.
func (t *Times) Quiet(now int64, known bool, still int64) int64 {
	quiet := now - t.latestAt
	switch {
	case t.vain.last == 0:
		return quiet
	case known:
		return min(quiet, still)
	}
	return min(quiet, now-t.vain.last)
}
