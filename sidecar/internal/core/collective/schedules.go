package collective

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Sidecars of two builds may plan a collective differently (coll.Schedules). Its ranks then wait for
// each other in vain, or get wrong results, although they have called the same collective. A job
// without collectives of the engine, such as that of an MPI, runs with sidecars of any builds:
// therefore a collective with ranks of such a pod ends the job, and the greeting does not.

// Greeted notes the number of a pod's schedules, 0 if its release reports none. The pod may greet
// after a collective with its ranks has begun here.
func (r *Room) Greeted(pod link.Peer, schedules uint64) {
	if r.cfg.Schedules == 0 || pod == r.cfg.Self || schedules == r.cfg.Schedules {
		return
	}
	if r.others == nil {
		r.others = map[link.Peer]uint64{}
	}
	r.others[pod] = schedules
	for _, b := range r.members {
		if b == nil {
			continue
		}
		for _, m := range b.comms { // any order: this pod is the only other one in those that are in use
			if m.seq > 0 {
				r.comparePods(b, m)
			}
		}
	}
}

// comparePods records a dispute if ranks of a communicator are in a pod with other schedules.
func (r *Room) comparePods(b *member, m *comm) {
	if len(r.others) == 0 { // nearly always
		return
	}
	for i := range m.size {
		pod := link.Peer(r.cfg.PodOf[m.rank(int32(i))])
		if _, is := r.others[pod]; is {
			r.refusePod(b, pod)
			return
		}
	}
}

// refusePod records the dispute with a pod. Its other sidecars may get only the beginning of the
// text, which therefore has the pods and the numbers (core.abortText).
func (r *Room) refusePod(b *member, pod link.Peer) {
	if r.dispute != nil || r.job.Failed() {
		return
	}
	text := fmt.Sprintf("collectives: pod %d has schedules %d, pod %d schedules %d: use images of one release for all pods of the job", pod, r.others[pod], r.cfg.Self, r.cfg.Schedules)
	if r.others[pod] == 0 {
		text += " (0: a release that does not report them)"
	}
	r.dispute = &Dispute{Rank: b.session.Rank(), Reason: text}
}
