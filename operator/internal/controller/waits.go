package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Waiters tells what the ranks of a running pod wait for.
type Waiters interface {
	WaitsOf(ctx context.Context, p *corev1.Pod) ([]why.Rank, error)
}

// Bounds of the questions about waits. A job that works costs one question a look,
// to the first pod; one that hangs is asked as a whole, once a look.
const (
	waitsTime   = 5 * time.Second // all questions of one look
	waitsAtOnce = 16              // questions of one look under way
	ranksKept   = 16_384          // of a larger job the first ones are told
	looksAtOnce = 2               // jobs: a look takes a worker as long as it lasts
	lookMin     = time.Second
	lookMax     = time.Minute
)

// watch is when the ranks of jobs were last asked what they wait for.
type watch struct {
	mu    sync.Mutex // guards all
	under int        // looks under way
	last  map[types.NamespacedName]time.Time
}

// begin reports whether a job may be asked now, and how long it is until the next
// time. end has to follow where it may.
func (w *watch) begin(job types.NamespacedName, after time.Duration, now time.Time) (may bool, next time.Duration) {
	pace := min(max(after/4, lookMin), lookMax)
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.last[job].Add(pace).Sub(now); left > 0 {
		return false, min(left, pace) // the clock may have been set back
	}
	if w.under >= looksAtOnce {
		return false, lookMin
	}
	if w.last == nil {
		w.last = map[types.NamespacedName]time.Time{}
	}
	w.under++
	w.last[job] = now
	return true, pace
}

// spare takes the place of a look for a job whose time is over, if there is one. end
// has to follow where there is.
func (w *watch) spare() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under >= looksAtOnce {
		return false
	}
	w.under++
	return true
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under--
}

// forget drops what is known of a job that is over.
func (w *watch) forget(job types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, job)
}

// watchWaits asks the ranks of a job that runs for long whether all of them only
// wait; next is when to do it again, 0: never.
func (r *Reconciler) watchWaits(ctx context.Context, o *verdict.Observation) (next time.Duration) {
	if r.Waiters == nil || verdict.Finished(&o.Job.Status) {
		r.watch.forget(client.ObjectKeyFromObject(o.Job))
		return 0
	}
	after, old := verdict.Suspects(o)
	if after <= 0 {
		return 0
	}
	if !old {
		return min(after, lookMax)
	}
	may, next := r.watch.begin(client.ObjectKeyFromObject(o.Job), after, o.Now)
	if !may {
		return next
	}
	defer r.watch.end()
	moves := false
	ranks, all := r.askAll(ctx, o, func(some []why.Rank) bool {
		moves = why.Moves(some, after)
		return moves
	})
	switch {
	case moves:
		o.Waits = new(verdict.Waits)
	case all && why.Stuck(ranks, after):
		o.Waits = &verdict.Waits{Stuck: true, Blocked: why.Blocked(ranks), Lines: why.Explain(ranks)}
	}
	return next
}

// explain asks what the ranks of a job wait for whose time is over. Of a job among many
// whose time is over at once it is not told: their silent pods would take all workers
// from the jobs of others.
func (r *Reconciler) explain(ctx context.Context, o *verdict.Observation) {
	if r.Waiters == nil || !r.watch.spare() {
		return
	}
	defer r.watch.end()
	ranks, all := r.askAll(ctx, o, func([]why.Rank) bool { return false })
	lines := why.Explain(ranks)
	if len(lines) == 0 {
		return
	}
	if !all {
		lines = append(lines, "of other ranks nothing is known")
	}
	o.Waits = &verdict.Waits{Lines: lines}
}

// askAll asks the pods of a job, the first one alone and then many at once, until
// what some of them have said is enough. all is false if one did not answer, or was
// not asked.
func (r *Reconciler) askAll(ctx context.Context, o *verdict.Observation, enough func([]why.Rank) bool) (ranks []why.Rank, all bool) {
	ctx, cancel := context.WithTimeout(ctx, waitsTime)
	defer cancel()
	var pods []*corev1.Pod
	for _, p := range o.Pods {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	all = len(pods) > 0
	for n := 1; len(pods) > 0 && ctx.Err() == nil; n = waitsAtOnce {
		n = min(n, len(pods))
		answers, errs := make([][]why.Rank, n), make([]error, n)
		var wg sync.WaitGroup
		for i, p := range pods[:n] {
			wg.Go(func() { answers[i], errs[i] = r.Waiters.WaitsOf(ctx, p) })
		}
		wg.Wait()
		var some []why.Rank
		for i := range n {
			if errs[i] != nil {
				all = false
				continue
			}
			some = append(some, of(answers[i], pods[i], o.Job)...)
		}
		if enough(some) {
			return ranks, false
		}
		ranks = append(ranks, some[:min(len(some), ranksKept-len(ranks))]...)
		pods = pods[n:]
	}
	return ranks, all && len(pods) == 0
}

// of are the ranks that are the pod's, of those that it tells of: it may tell
// anything.
func of(answer []why.Rank, p *corev1.Pod, job *v1alpha1.MPIJob) []why.Rank {
	number := verdict.Number(p, job)
	if number < 0 {
		return nil
	}
	first, n := desired.Ranks(&job.Spec, number)
	var ranks []why.Rank
	for i := range answer {
		if r := answer[i].Rank; r >= int(first) && r < int(first+n) && len(ranks) < int(n) {
			ranks = append(ranks, answer[i].Bounded())
		}
	}
	return ranks
}
