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

// Waiters tells what the ranks of a running pod wait for, of which there are most at most.
type Waiters interface {
	WaitsOf(ctx context.Context, p *corev1.Pod, most int) ([]why.Rank, error)
}

// Bounds of the questions about waits. A job that works costs one question a look, to
// one pod; one that hangs, or seems to, is asked as a whole, once a look.
const (
	waitsTime   = 5 * time.Second // all questions of one look
	waitsAtOnce = 16              // questions of one look under way
	ranksKept   = 16_384          // of a larger job the first ones are told
	looksAtOnce = 2               // jobs: a look takes a worker as long as it lasts
	lookMin     = time.Second
	lookMax     = time.Minute
)

// When ranks are held against each other, to find that they disagree about a
// collective: where one of a job that was asked in its turn has waited in a collective
// for a while. Jobs whose ranks are far apart look like that again and again.
const (
	earlyAfter = 5 * time.Second // the wait, and from when on a job is asked
	earlyAgain = 2 * time.Second // to the look that has to find the same
	earlyShare = 50              // whole looks for that take at most 1/50 of all time
)

// watch is when the ranks of jobs are asked what they wait for.
type watch struct {
	mu    sync.Mutex        // guards all
	under int               // looks under way
	queue map[string]queued // namespaces of which a job waits for a look
	jobs  map[types.NamespacedName]*asked
}

// queued is a namespace's place among those whose jobs wait for a look.
type queued struct{ since, last time.Time }

// queuedFor is how long a namespace keeps its place without asking again: its jobs ask
// every lookMin, unless they are over, or the workers have too much to do.
const queuedFor = 5 * lookMin

// asked is what is kept of one job.
type asked struct {
	since time.Time // it has been seen to run
	next  time.Time // look
	turn  int       // looks so far: each begins with another pod
	whole time.Time // when it may be asked as a whole for a disagreement
	found int32     // the attempt of which the last whole look found one
	finds bool      // it did
}

// lookPace is the time between two looks at a job that has run for so long. It is looked at
// more rarely the longer it runs; for a deadlock when one may be seen.
func lookPace(after, age time.Duration) time.Duration {
	early := min(max(age/2, earlyAfter), lookMax)
	if age < after {
		return min(early, max(after-age, lookMin))
	}
	return min(early, max(after/4, lookMin))
}

// begin reports whether a job may be asked now, and how long it is until the next
// time. end has to follow where it may.
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

// of is what is known of a job that runs. mu is held.
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

// runs is for how long a job has been seen to run, by this process's own clock: the
// time in its condition may be another one's.
func (w *watch) runs(job types.NamespacedName, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(now.Sub(w.of(job, now).since), 0)
}

// turnOf reports whether a job of a namespace may have a look now: there is one, and no
// other namespace that has waited longer needs it. A namespace that had one is behind
// the others again, however many young jobs it has. mu is held.
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

// kept is what is known of a job, and counts its looks.
func (w *watch) kept(job types.NamespacedName) (k asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.jobs[job]; x != nil {
		k = *x
		x.turn++
	}
	return k
}

// looked notes what a whole look at a job has found, and how long it took.
func (w *watch) looked(job types.NamespacedName, attempt int32, finds bool, now time.Time, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.jobs[job]
	if k == nil {
		return // it is over
	}
	k.found, k.finds, k.whole = attempt, finds, now.Add(earlyShare*took)
	if finds {
		k.next = now.Add(earlyAgain)
	}
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

// forget drops what is known of a job that is over, or does not run: what was found
// is of ranks that are gone.
func (w *watch) forget(job types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, job)
}

// watchWaits asks the ranks of a running job whether they disagree, and of one that runs
// for long whether all of them only wait; next is when to do it again, 0: never.
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

// lookAtRanks asks a job, as far as it has to be asked; again is when to do it again before its
// time, 0: not.
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
	// What a pod that does not answer knows cannot make untrue what others say.
	lines := why.Disagreements(ranks)
	r.watch.looked(job, attempt, len(lines) > 0, o.Now, time.Since(begun))
	if len(lines) == 0 {
		return 0
	}
	if twice { // ranks that came a moment later are of some mind by now, too
		if o.Waits == nil {
			o.Waits = new(verdict.Waits)
		}
		o.Waits.Disagree = lines
	}
	return earlyAgain
}

// explain asks what the ranks of a job wait for whose time is over. Of a job among many
// whose time is over at once it is not told: their silent pods would take all workers
// from the jobs of others.
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

// askAll asks the pods of a job, one of them alone, which takes turns, and then many at
// once, until what some of them have said is enough. all is false if one did not answer, or was
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
			ranks = append(ranks, answer[i])
		}
	}
	return ranks
}
