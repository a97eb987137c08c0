package sim

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Deserters say goodbye in the middle of the job, whatever they have open: at
// every step of every protocol. Nothing fails by that. Who waits for them is
// told so, and what they had sent before comes all the same.

// planDeserters draws who leaves, and when.
func (w *world) planDeserters() {
	if !w.desertion {
		return
	}
	for n := 1 + w.rng.IntN(2); n > 0; n-- {
		w.apps[w.rng.IntN(len(w.apps))].deserts = 0.05 + 0.95*w.rng.Float64()
	}
	w.planFreeze()
}

// desert lets an application go whose time has come.
func (w *world) desert(a *app) error {
	if a.dead && a.deserts > 0 {
		a.linger()
	}
	if a.dead || a.waits || a.deserts == 0 || w.progress() < a.deserts {
		return nil
	}
	var err error
	a.dead, err = a.submit.Push(&shm.Descriptor{Op: shm.OpDetach})
	if a.dead && w.seed%2 == 0 { // its process ends at once, whatever it has not read
		w.engines[w.podOf[a.rank]].SessionGone(a.session)
	}
	return err
}

// linger reads completions, and does nothing about them.
func (a *app) linger() {
	var d shm.Descriptor
	for a.complete.Pop(&d) {
	}
	a.complete.Release()
}

// checkDeserted: only a deserter's peer is told that it has left, and never
// about a message whose send had ended.
func (a *app) checkDeserted(o *operation, d *shm.Descriptor) error {
	if o.act != nil {
		if c, is := o.act.(*cancelled); is && (a.w.apps[c.peer].deserts > 0 || a.w.leaving != nil || a.w.again != nil && a.w.apps[c.peer].dead) {
			return nil // it waited for what nobody sends
		}
		return fmt.Errorf("request %d ended because somebody has left, and nobody has", d.Req)
	}
	other := a.w.apps[o.peer]
	if other.deserts == 0 || !other.dead {
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

// sending names a message of a rank.
type sending struct {
	to  uint32
	tag uint64
	seq int
}

// noteSent remembers the sends of a deserter that have ended.
func (a *app) noteSent(o *operation) {
	if a.deserts == 0 || !o.send {
		return
	}
	if a.sent == nil {
		a.sent = map[sending]bool{}
	}
	a.sent[sending{o.peer, o.tag, o.seq}] = true
}
