package ranks

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Job is the state of the job for the rooms: which pod has which rank, which ranks and pods
// have left, and whether the job has failed. The core writes it; the rooms read it.
type Job struct {
	podOf  []int32
	pods   []Pod
	left   []uint64 // ranks that have left, one bit each; nil: none
	failed bool
}

// Pod is the state of a pod in the job.
type Pod struct{ gone, ahead bool }

// NewJob makes the job of a pod for each world rank.
func NewJob(podOf []int32, pods int) *Job { return &Job{podOf: podOf, pods: make([]Pod, pods)} }

// Ranks returns the job's size.
func (j *Job) Ranks() int { return len(j.podOf) }

// Check returns an error for a rank beyond the job's size.
func (j *Job) Check(rank uint32) error {
	if int(rank) < len(j.podOf) {
		return nil
	}
	return NoSuchRank(rank, j.podOf)
}

// PodOf returns the pod of a rank. Preconditions: rank is below the job's size.
func (j *Job) PodOf(rank uint32) link.Peer { return link.Peer(j.podOf[rank]) }

// HasLeft reports whether a rank has left: nothing of it will come any more.
func (j *Job) HasLeft(rank uint32) bool { return j.left != nil && j.left[rank/64]&(1<<(rank%64)) != 0 }

// Leave notes that a rank has left. It reports whether that is news.
func (j *Job) Leave(rank uint32) (news bool) {
	if j.left == nil {
		j.left = make([]uint64, (len(j.podOf)+63)/64)
	}
	news = !j.HasLeft(rank)
	j.left[rank/64] |= 1 << (rank % 64)
	return news
}

// Renew begins a generation, which no rank has left.
func (j *Job) Renew() { j.left = nil }

// Failed reports whether the job has failed.
func (j *Job) Failed() bool { return j.failed }

// Fail notes that the job has failed.
func (j *Job) Fail() { j.failed = true }

// Pod returns a pod.
func (j *Job) Pod(p link.Peer) *Pod { return &j.pods[p] }

// Gone reports whether all ranks of the pod have left in good order: its sidecar has sent Bye.
func (p *Pod) Gone() bool { return p.gone }

// SetGone sets the result of Gone.
func (p *Pod) SetGone(is bool) { p.gone = is }

// Ahead reports whether the ranks of the pod are in a later generation (P§9).
func (p *Pod) Ahead() bool { return p.ahead }

// SetAhead sets the result of Ahead.
func (p *Pod) SetAhead(is bool) { p.ahead = is }

// Lost returns the status of requests to a pod that answers them no more.
func (j *Job) Lost(p link.Peer) shm.Status {
	if x := &j.pods[p]; (x.gone || x.ahead) && !j.failed { // in a failed job the pod has left because of the failure
		return shm.StatusPeerLeft
	}
	return shm.StatusPeerFailed
}

// LostRank returns the status of requests to a rank that answers them no more.
func (j *Job) LostRank(rank uint32) shm.Status {
	if j.HasLeft(rank) {
		return shm.StatusPeerLeft
	}
	return j.Lost(j.PodOf(rank))
}

// Refusal returns the status of messages to, and from, a rank of this sidecar that has left.
func (j *Job) Refusal() shm.Status {
	if j.failed {
		return shm.StatusPeerFailed
	}
	return shm.StatusPeerLeft
}

// NotHere returns the error of a frame for a rank that this sidecar does not host.
func NotHere(h *wire.Header) error {
	return fmt.Errorf("%w: message for rank %d, which is not in this pod", link.ErrProtocol, h.Dst)
}

// NotThere returns the error of a frame from a rank that its peer does not host.
func NotThere(h *wire.Header) error {
	return fmt.Errorf("%w: message from rank %d, which is not in its pod", link.ErrProtocol, h.Src)
}

// NoSuchRank returns the error of a descriptor with a rank beyond the job's size.
func NoSuchRank(rank uint32, podOf []int32) error {
	return fmt.Errorf("rank %d of a job of %d", rank, len(podOf))
}
