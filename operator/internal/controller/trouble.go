package controller

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// statusWrite stands for the write of a status among the actions. It follows every
// action, and its errors are tracked separately.
const statusWrite verdict.Action = -1

// trouble is an error answer of the API server, with the time for which the action is
// not tried again. Each action of a job has its own, because the success of one action
// says nothing about another.
type trouble struct {
	uid        types.UID
	generation int64
	attempt    int32
	cause      error
	wait       time.Duration
	until      time.Time
}

// Time from an error to the next try of the action. It doubles with each error. A
// reconciliation is not a try: pods change many times a second, and each call may last
// as long as a webhook that does not answer (30 s).
const (
	troubleMin = 100 * time.Millisecond
	troubleMax = 5 * time.Minute
	// Maximum for a status: a restart waits for it.
	statusMax = 30 * time.Second
	// For a change of a running job that requires an action by a user.
	changeAgain = 30 * time.Second
	// For a job that cannot start without an action by a user. A resolved cause is
	// noticed soon, and changes of pods that name the job cause at most one try per
	// beginAgain.
	beginAgain = 2 * time.Second
)

// trouble returns the last error of an action for a job, and how long the action is not
// to be tried again; 0: it may be tried now. A changed spec or a new attempt may always
// be tried.
func (r *recent) trouble(job *v1alpha1.MPIJob, action verdict.Action, now time.Time) (left time.Duration, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.of(job).troubles[action]
	if !ok || !t.of(job) {
		return 0, nil
	}
	return min(t.until.Sub(now), t.wait), t.cause // the clock may have been set back
}

// troubles reports whether an action is not to be tried now. For the action Wait, which
// only changes the status, it reports this for the write of the status.
func (r *recent) troubles(job *v1alpha1.MPIJob, action verdict.Action, now time.Time) bool {
	left, _ := r.trouble(job, action, now)
	if left <= 0 && action == verdict.Wait {
		left, _ = r.trouble(job, statusWrite, now)
	}
	return left > 0
}

// failed notes that an action for a job has failed after the time took. The next try is
// not sooner than took, so that workers do not spend most of their time on such calls.
// Errors that are not answers of the API server are left to the work queue; a status
// could not be written either.
func (r *recent) failed(job *v1alpha1.MPIJob, action verdict.Action, cause error, took time.Duration, now time.Time) {
	if !errors.As(cause, new(apierrors.APIStatus)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := troubleMin
	if t := r.of(job).troubles[action]; t.of(job) {
		wait = 2 * t.wait
	}
	most := troubleMax
	if action == statusWrite {
		most = statusMax
	}
	wait = min(max(wait, took), most)
	r.setTrouble(job, action, trouble{job.UID, job.Generation, verdict.AttemptOf(job), cause, wait, now.Add(wait)})
}

// refused notes that an action for a job cannot be carried out without an action by a
// user.
func (r *recent) refused(o *verdict.Observation, action verdict.Action, cause *permanent, now time.Time) {
	wait := beginAgain
	if o.Batch != nil {
		wait = changeAgain
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTrouble(o.Job, action, trouble{o.Job.UID, o.Job.Generation, verdict.AttemptOf(o.Job), cause, wait, now.Add(wait)})
}

// setTrouble stores a trouble. Preconditions: mu is held.
func (r *recent) setTrouble(job *v1alpha1.MPIJob, action verdict.Action, t trouble) {
	r.change(client.ObjectKeyFromObject(job), func(x *record) {
		if x.troubles == nil {
			x.troubles = map[verdict.Action]trouble{}
		}
		x.troubles[action] = t
	})
}

// went notes that an action for a job was carried out.
func (r *recent) went(job *v1alpha1.MPIJob, action verdict.Action) {
	r.set(job, func(x *record) { delete(x.troubles, action) })
}

func (t *trouble) of(job *v1alpha1.MPIJob) bool {
	return t.uid == job.UID && t.generation == job.Generation && t.attempt == verdict.AttemptOf(job)
}

// unwritten is the error of a status that could not be written and is not tried again
// for the time left.
type unwritten struct {
	left  time.Duration
	cause error
}

func (u *unwritten) Error() string { return "the status cannot be written: " + u.cause.Error() }
func (u *unwritten) Unwrap() error { return u.cause }

// later returns when a job with an unwritten status is reconciled again. A deadline
// that is due sooner does not wait for the status.
func (u *unwritten) later(due time.Duration) time.Duration {
	if due > 0 {
		due = max(due, pace)
	}
	return max(earlier(u.left, due), troubleMin)
}
