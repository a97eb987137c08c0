package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Ranks that leave early: they detach with open requests, at any step of a protocol. That
// does not fail the job. Requests that wait for such a rank end with StatusPeerLeft, and
// messages whose sends had ended are delivered.

// planLeavers draws which ranks leave early, and when.
func (w *world) planLeavers() {
	if !w.hasLeavers {
		return
	}
	for n := 1 + w.rng.IntN(2); n > 0; n-- {
		w.apps[w.rng.IntN(len(w.apps))].leavesAt = 0.05 + 0.95*w.rng.Float64()
	}
	w.planFreeze()
}

// leaveEarly detaches an application when its time to leave has come.
func (w *world) leaveEarly(a *app) error {
	if a.dead && a.leavesAt > 0 {
		a.drainCompletions()
	}
	if a.dead || a.waits || a.leavesAt == 0 || w.progress() < a.leavesAt {
		return nil
	}
	var err error
	a.dead, err = a.submit.Push(&shm.Descriptor{Op: shm.OpDetach})
	if a.dead && w.seed%2 == 0 { // its process ends at once, with unread completions
		w.engines[w.podOf[a.rank]].SessionGone(a.session)
	}
	return err
}

// drainCompletions reads completions and ignores them.
func (a *app) drainCompletions() {
	var d shm.Descriptor
	for a.complete.Pop(&d) {
	}
	a.complete.Release()
}

// checkPeerLeft checks a request that ended with StatusPeerLeft: its peer has left, and the
// request is not the receive of a message whose send had ended.
func (a *app) checkPeerLeft(o *operation, d *shm.Descriptor) error {
	if o.act != nil {
		if c, is := o.act.(*cancelled); is && (a.w.apps[c.peer].leavesAt > 0 || a.w.leaving != nil || a.w.again != nil && a.w.apps[c.peer].dead) {
			return nil // it waited for a message that is not sent
		}
		return fmt.Errorf("request %d ended because a rank has left, and none has", d.Req)
	}
	other := a.w.apps[o.peer]
	if other.leavesAt == 0 || !other.dead {
		return fmt.Errorf("request %d ended because rank %d has left, and it has not", d.Req, o.peer)
	}
	if o.send {
		return nil
	}
	if other.sent[sending{a.rank, o.tag, o.seq}] {
		return fmt.Errorf("the message of request %d from rank %d tag %d is lost: its send had ended before the rank left", d.Req, o.peer, o.tag)
	}
	return nil
}

// sending identifies a message of a rank.
type sending struct {
	to  uint32
	tag uint64
	seq int
}

// noteSent records the end of a send of a rank that leaves early.
func (a *app) noteSent(o *operation) {
	if a.leavesAt == 0 || !o.send {
		return
	}
	if a.sent == nil {
		a.sent = map[sending]bool{}
	}
	a.sent[sending{o.peer, o.tag, o.seq}] = true
}
