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

// statusWrite stands for the write of a status among the actions: it follows each of
// them, and has troubles of its own.
const statusWrite verdict.Action = -1

// trouble is an error with which the API server has answered, and for how long the
// same is not tried again. Each action for a job has its own: that one is carried out says
// nothing of another one.
type trouble struct {
	uid        types.UID
	generation int64
	attempt    int32
	cause      error
	wait       time.Duration
	until      time.Time
}

// Time from an error to the next try of the same: it doubles from one to the next. A
// look at a job does not count as a try: its pods change many times a second, and each
// call may last as long as a webhook that does not answer (30 s).
const (
	troubleMin = 100 * time.Millisecond
	troubleMax = 5 * time.Minute
	// Of a status: a restart waits for it.
	statusMax = 30 * time.Second
	// Of a change of a running job that a person has to make possible.
	changeAgain = 30 * time.Second
	// Of a job that cannot begin before a person has made it possible: what is mended
	// is seen soon, and news of pods that name the job cost no more than this.
	beginAgain = 2 * time.Second
)

// trouble is what the API server last said to an action for a job, and how long that
// is not to be tried again; 0: now. A job that asks for something else is not held up.
func (r *recent) trouble(job *v1alpha1.MPIJob, action verdict.Action, now time.Time) (left time.Duration, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.of(job).troubles[action]
	if !ok || !t.of(job) {
		return 0, nil
	}
	return min(t.until.Sub(now), t.wait), t.cause // the clock may have been set back
}

// troubles reports that an action is not to be tried now, or, where nothing but the status
// is to be changed, its write.
func (r *recent) troubles(job *v1alpha1.MPIJob, action verdict.Action, now time.Time) bool {
	left, _ := r.trouble(job, action, now)
	if left <= 0 && action == verdict.Wait {
		left, _ = r.trouble(job, statusWrite, now)
	}
	return left > 0
}

// failed notes that an action for a job has failed, and took so long: the next try is
// not sooner than that, so that nobody waits for such answers most of the time. Errors
// that are not the API server's answer are the queue's to repeat: nobody can be told of
// them either.
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
	r.hold(job, action, trouble{job.UID, job.Generation, verdict.AttemptOf(job), cause, wait, now.Add(wait)})
}

// refused notes that an action for a job cannot be carried out before a person has
// made it possible.
func (r *recent) refused(o *verdict.Observation, action verdict.Action, cause *permanent, now time.Time) {
	wait := beginAgain
	if o.Batch != nil {
		wait = changeAgain
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold(o.Job, action, trouble{o.Job.UID, o.Job.Generation, verdict.AttemptOf(o.Job), cause, wait, now.Add(wait)})
}

// hold notes trouble. Preconditions: mu is held.
func (r *recent) hold(job *v1alpha1.MPIJob, action verdict.Action, t trouble) {
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

// unwritten is that a status could not be written, and is not tried again before some
// time has passed.
type unwritten struct {
	left  time.Duration
	cause error
}

func (u *unwritten) Error() string { return "the status cannot be written: " + u.cause.Error() }
func (u *unwritten) Unwrap() error { return u.cause }

// later is when a job is looked at again whose status cannot be written: what is due
// sooner, such as a deadline, does not wait for that.
func (u *unwritten) later(due time.Duration) time.Duration {
	if due > 0 {
		due = max(due, pace)
	}
	return max(earlier(u.left, due), troubleMin)
}
