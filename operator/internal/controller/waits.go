package controller

import (
	"context"
	"maps"
	"slices"
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

// Waiters returns what the ranks of a running pod wait for, for at most most ranks.
type Waiters interface {
	WaitsOf(ctx context.Context, p *corev1.Pod, most int) ([]why.Rank, error)
}

// Bounds of the requests about waits. One check ("look") of a job that makes progress
// costs one request to one pod. All pods of a job that hangs, or seems to, are asked at
// each check.
const (
	waitsTime   = 5 * time.Second // all requests of one check
	waitsAtOnce = 16              // concurrent requests of one check
	ranksKept   = 16_384          // ranks of a larger job that are reported: the first ones
	looksAtOnce = 2               // jobs that are checked at once: a check holds a worker while it lasts
	lookMin     = time.Second
	lookMax     = time.Minute
)

// Bounds of the comparison of all ranks that finds a disagreement about a collective.
// It is made when a rank of a pod that was asked in turn has waited in a collective for
// earlyAfter. Jobs whose ranks are far apart reach that state again and again.
const (
	earlyAfter = 5 * time.Second // the wait of a rank that causes a comparison, and the minimum age of its job
	earlyAgain = 2 * time.Second // time to the second check, which must find the same disagreement
	earlyShare = 50              // such comparisons take at most 1/50 of the time
)

// watch holds when the ranks of each job are asked what they wait for.
type watch struct {
	mu    sync.Mutex        // guards all fields of watch, and the states of its jobs
	under int               // number of checks under way
	queue map[string]queued // namespaces with a job that waits for a check
	jobs  map[types.NamespacedName]*asked
}

// queued is the position of a namespace among those with a waiting job.
type queued struct{ since, last time.Time }

// queuedFor is how long a namespace keeps its position without a new request. Its jobs
// ask every lookMin, unless they are over or the workers are overloaded.
const queuedFor = 5 * lookMin

// asked is the state of one job.
type asked struct {
	since time.Time // time at which this process first saw that the job runs
	next  time.Time // time of the next check
	turn  int       // number of checks so far: each starts with another pod
	whole time.Time // earliest time of the next comparison of all ranks
	found int32     // attempt of the last comparison
	finds bool      // the last comparison found a disagreement
}

// lookPace returns the time between two checks of a job of the given age. It grows with
// the age. after is the wait that counts as a deadlock: if the job is younger, one check
// is due at that age, when a deadlock can first be found.
func lookPace(after, age time.Duration) time.Duration {
	early := min(max(age/2, earlyAfter), lookMax)
	if age < after {
		return min(early, max(after-age, lookMin))
	}
	return min(early, max(after/4, lookMin))
}

// begin reports whether a job may be checked now, and the time until the next check. If
// it returns true, the caller must call end.
func (w *watch) begin(job types.NamespacedName, pace time.Duration, now time.Time) (may bool, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.jobs[job]
	if k != nil && k.next.After(now) {
		return false, min(k.next.Sub(now), pace) // the clock may have been set back
	}
	if !w.turnOf(job.Namespace, now) {
		return false, lookMin
	}
	w.under++
	w.of(job, now).next = now.Add(pace)
	return true, pace
}

// of returns the state of a running job, and makes it if needed. mu is held.
func (w *watch) of(job types.NamespacedName, now time.Time) *asked {
	k := w.jobs[job]
	if k == nil {
		k = &asked{since: now}
		if w.jobs == nil {
			w.jobs = map[types.NamespacedName]*asked{}
		}
		w.jobs[job] = k
	}
	return k
}

// runs returns for how long a job has been seen to run, by this process's own clock.
// The time in its condition may come from another clock.
func (w *watch) runs(job types.NamespacedName, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(now.Sub(w.of(job, now).since), 0)
}

// turnOf reports whether a job of a namespace may be checked now: a slot is free, and
// no other namespace that has waited longer needs it. After a check, the namespace goes
// behind the others, regardless of how many jobs it has. mu is held.
func (w *watch) turnOf(namespace string, now time.Time) bool {
	maps.DeleteFunc(w.queue, func(_ string, q queued) bool { return now.Sub(q.last).Abs() > queuedFor })
	mine, waits := w.queue[namespace]
	if !waits {
		mine.since = now
	}
	free := looksAtOnce - w.under
	for other, q := range w.queue {
		if other != namespace && (!waits || q.since.Before(mine.since)) {
			free--
		}
	}
	if free > 0 {
		delete(w.queue, namespace)
		return true
	}
	if w.queue == nil {
		w.queue = map[string]queued{}
	}
	w.queue[namespace] = queued{mine.since, now}
	return false
}

// kept returns the state of a job and increments its number of checks.
func (w *watch) kept(job types.NamespacedName) (k asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.jobs[job]; x != nil {
		k = *x
		x.turn++
	}
	return k
}

// looked notes the result of a comparison of all ranks, and how long it took.
func (w *watch) looked(job types.NamespacedName, attempt int32, finds bool, now time.Time, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.jobs[job]
	if k == nil {
		return // the job is over
	}
	k.found, k.finds, k.whole = attempt, finds, now.Add(earlyShare*took)
	if finds {
		k.next = now.Add(earlyAgain)
	}
}

// spare takes a slot, if one is free, for a job whose time is over. If it returns true,
// the caller must call end.
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

// forget deletes the state of a job that is over or does not run: its findings are
// about ranks that no longer exist.
func (w *watch) forget(job types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, job)
}

// watchWaits checks whether the ranks of a running job disagree, and, for a job that
// has run long enough, whether all of them only wait. next is the time to the next
// check; 0: none.
func (r *Reconciler) watchWaits(ctx context.Context, o *verdict.Observation) (next time.Duration) {
	job := client.ObjectKeyFromObject(o.Job)
	after, age := verdict.Suspects(o)
	switch {
	case r.Waiters == nil || verdict.Finished(&o.Job.Status) || after <= 0:
		r.watch.forget(job)
		return 0
	case age < 0:
		r.watch.forget(job)
		return min(after, lookMax)
	}
	if age = max(age, r.watch.runs(job, o.Now)); age < min(after, earlyAfter) {
		return min(after, earlyAfter) - age
	}
	may, next := r.watch.begin(job, lookPace(after, age), o.Now)
	if !may {
		return next
	}
	defer r.watch.end()
	return earlier(next, r.lookAtRanks(ctx, o, after, age))
}

// lookAtRanks asks the pods of a job, as many as needed. again is the time to an
// additional check; 0: none.
func (r *Reconciler) lookAtRanks(ctx context.Context, o *verdict.Observation, after, age time.Duration) (again time.Duration) {
	job, attempt := client.ObjectKeyFromObject(o.Job), verdict.AttemptOf(o.Job)
	k := r.watch.kept(job)
	twice := k.finds && k.found == attempt
	early, first, moves := (!verdict.Disagrees(o) || o.Job.Spec.RunPolicy.DeadlockAction == v1alpha1.DeadlockFail) && !k.whole.After(o.Now), true, age < after
	begun := time.Now()
	ranks, all := r.askAll(ctx, o, k.turn, func(some []why.Rank) bool {
		if first {
			early, first = early && (twice || why.InCollective(some, earlyAfter)), false
		}
		moves = moves || why.Moves(some, after)
		return moves && !early
	})
	switch {
	case moves, all && why.Halted(ranks, after) != nil:
		o.Waits = new(verdict.Waits)
	case all && why.Stuck(ranks, after):
		o.Waits = &verdict.Waits{Stuck: true, Lines: why.Explain(ranks)}
	}
	if !early {
		return 0
	}
	// An unanswered request cannot invalidate what the other ranks report.
	lines := why.Disagreements(ranks)
	r.watch.looked(job, attempt, len(lines) > 0, o.Now, time.Since(begun))
	if len(lines) == 0 {
		return 0
	}
	if twice { // ranks that arrived between the two checks have taken part by now
		if o.Waits == nil {
			o.Waits = new(verdict.Waits)
		}
		o.Waits.Disagree = lines
	}
	return earlyAgain
}

// explain asks what the ranks of a job whose time is over wait for. If no slot is free,
// it asks nothing: pods of many such jobs that do not answer would take all workers
// from other jobs.
func (r *Reconciler) explain(ctx context.Context, o *verdict.Observation) {
	if r.Waiters == nil || !r.watch.spare() {
		return
	}
	defer r.watch.end()
	ranks, all := r.askAll(ctx, o, 0, func([]why.Rank) bool { return false })
	lines := why.Explain(ranks)
	if len(lines) == 0 {
		return
	}
	if !all {
		lines = append(lines, "of other ranks nothing is known")
	}
	o.Waits = &verdict.Waits{Lines: lines}
}

// askAll asks one pod of a job, chosen in turn, and then many at once, until enough
// returns true for the answers of a group. all is false if a pod did not answer or was
// not asked.
func (r *Reconciler) askAll(ctx context.Context, o *verdict.Observation, turn int, enough func([]why.Rank) bool) (ranks []why.Rank, all bool) {
	ctx, cancel := context.WithTimeout(ctx, waitsTime)
	defer cancel()
	var pods []*corev1.Pod
	for _, p := range o.Pods {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	if all = len(pods) > 0; all {
		turn %= len(pods)
		pods = slices.Concat(pods[turn:], pods[:turn])
	}
	for n := 1; len(pods) > 0 && ctx.Err() == nil; n = waitsAtOnce {
		n = min(n, len(pods))
		answers, errs := make([][]why.Rank, n), make([]error, n)
		var wg sync.WaitGroup
		for i, p := range pods[:n] {
			wg.Go(func() { answers[i], errs[i] = r.Waiters.WaitsOf(ctx, p, int(o.Job.Spec.RanksPerPod)) })
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

// of returns the answers about the pod's own ranks. A pod may report anything.
func of(answer []why.Rank, p *corev1.Pod, job *v1alpha1.MPIJob) []why.Rank {
	number := verdict.Number(p, job)
	if number < 0 {
		return nil
	}
	first, n := desired.Ranks(&job.Spec, number)
	var ranks []why.Rank
	for i := range answer {
		if r := answer[i].Rank; r >= int(first) && r < int(first+n) && len(ranks) < int(n) {
			ranks = append(ranks, answer[i])
		}
	}
	return ranks
}
