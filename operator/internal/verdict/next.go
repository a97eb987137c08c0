package verdict

import (
	"fmt"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// Action is what the controller shall do.
type Action int

// Actions.
const (
	Wait   Action = iota // nothing
	Apply                // see that the attempt's objects are there and as desired
	Remove               // take the attempt's Job and its pods away, for a restart
	Stop                 // the job is over: end what still runs, keep what can be read
	Delete               // delete the MPIJob: its time to live is over
)

// Plan is what to do next.
type Plan struct {
	Status  v1alpha1.MPIJobStatus // to be written if it differs
	Action  Action
	Requeue time.Duration // look again after this; 0: when something changes
	// Reads is the node of the pod for whose end the verdict waits; empty: it waits for none.
	Reads string
}

// removalPatience is how long a restart waits for the old pods: those of a lost
// node stay for minutes, and nothing of the new attempt needs their names.
const removalPatience = 20 * time.Second

// readMax bounds how long the verdict on an attempt waits for the pod of its first failure,
// beside the pod's own grace.
const readMax = 60 * time.Second

// readPatience is how long the verdict on an attempt waits for the end of the pod of its
// first failure. The pod's sidecar, whose last words have the cause, may take the whole grace
// of the pod to end, and a pod that is deleted takes its output along. The news of its end
// takes a moment more.
func (o *Observation) readPatience() time.Duration {
	return min(inject.Grace(&o.Job.Spec.Template.Spec), readMax) + settle
}

// Next says what to do with a job. Its status is one that the API server takes,
// whatever pods have been made to say.
func Next(o *Observation) Plan {
	o.recall()
	o.arrange()
	p := o.next()
	if p.Status.EndedPods = nil; !Finished(&p.Status) {
		p.Status.EndedPods = o.remember()
	}
	bound(&p.Status, o)
	return p
}

func (o *Observation) next() Plan {
	p := Plan{Status: *o.Job.Status.DeepCopy()}
	p.Status.ObservedGeneration = o.Job.Generation
	if Finished(&o.Job.Status) {
		return o.finished(p)
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRestarting); c != nil && c.Status == metav1.ConditionTrue {
		return o.restarting(p, c)
	}
	if o.Batch != nil || p.Status.JobName != "" || external(o.Job) {
		p.Status.Ranks = o.ranks()
	}
	if o.Transports != nil {
		p.Status.Transports = o.Transports
	}
	switch s := o.start(); {
	case o.held() && (suspended(o.Job) || AttemptOf(o.Job) == 0):
		// As in batch/v1: what is suspended starts afresh. A queue that holds the
		// next attempt does not: a deadline is over all of them.
		p.Status.StartTime = nil
	case p.Status.StartTime == nil && !s.IsZero():
		p.Status.StartTime = s
		if s.After(o.Now) { // by a clock that is ahead, for which no deadline waits
			p.Status.StartTime = &metav1.Time{Time: o.Now}
		}
	}
	if o.batchCondition(batchv1.JobComplete) != nil || external(o.Job) && o.allSucceeded() {
		return o.succeed(p)
	}
	if o.decidedWell() {
		return o.completed(p)
	}
	if f := o.decided(); f != nil {
		return o.fail(p, f)
	}
	if over, patience := o.kept(); over {
		return o.outlived(p, patience)
	}
	if left, ok := o.deadline(&p); ok {
		if left <= 0 {
			return o.fail(p, &v1alpha1.Failure{Reason: v1alpha1.ReasonDeadlineExceeded, Message: o.overdue()})
		}
		p.Requeue = left
	}
	f, settled := o.failure()
	if f == nil {
		f = o.deadlocked()
		settled = true
	}
	if left, ok := o.pendingDeadline(&p); ok && f == nil {
		if f, settled = o.unplaced(left); f == nil && (p.Requeue == 0 || left < p.Requeue) {
			p.Requeue = left
		}
	}
	if f == nil {
		return o.progress(p)
	}
	return o.failing(p, f, settled)
}

// succeed is the end of a job whose ranks have all ended with 0, unless sidecars
// know better.
func (o *Observation) succeed(p Plan) Plan {
	if left := o.lastWords(settle); left > 0 {
		p.Requeue = left
		return p
	}
	if f := o.denied(); f != nil {
		return o.failing(p, f, true)
	}
	return o.completed(p)
}

// completed ends the job as a good one.
func (o *Observation) completed(p Plan) Plan {
	o.state(&p, v1alpha1.ConditionComplete, reasonSucceeded, fmt.Sprintf("all %d ranks ended with exit code 0", o.Job.Spec.Ranks))
	p.Status.Ranks = counts(0, 0, o.Job.Spec.Ranks, 0) // the last pods may not have been heard of
	return o.end(p)
}

// failing is the way of a job in which something has failed.
func (o *Observation) failing(p Plan, f *v1alpha1.Failure, settled bool) Plan {
	switch {
	case !settled:
		p.Requeue = time.Second
		return p
	case o.unread(f) && o.waited() < o.readPatience():
		p.Status.FirstFailure = f
		p.Requeue, p.Reads = time.Second, f.Node
		return p
	case !external(o.Job) && (isDrained(f) || restarts(o.Job) < limit(o.Job)) && !f.Final() && o.Job.Spec.RunPolicy.Restarts(f):
		p.Status.FirstFailure = f
		o.state(&p, v1alpha1.ConditionRestarting, f.Reason, f.Sentence())
		p.Requeue = time.Millisecond // its pods are removed once the status says why
		return p
	}
	return o.fail(p, f)
}

// progress is the way of a job in which nothing has failed.
func (o *Observation) progress(p Plan) Plan {
	if o.NoProfile && o.Batch == nil && !(external(o.Job) && Prepared(o.Job)) { // else it has been read
		o.state(&p, v1alpha1.ConditionPending, v1alpha1.ReasonProfileMissing, fmt.Sprintf("FabricProfile %s does not exist", o.Job.Spec.ProfileName))
		return p
	}
	if left := o.wayLeft(); left > 0 && o.Batch == nil { // their end is heard of
		o.state(&p, v1alpha1.ConditionPending, v1alpha1.ReasonNameConflict, o.inTheWay())
		if p.Requeue == 0 || left < p.Requeue {
			p.Requeue = left
		}
		return p
	}
	p.Action = Apply
	if !external(o.Job) {
		p.Status.JobName = desired.AttemptName(o.Job.Name, AttemptOf(o.Job))
	}
	switch {
	case external(o.Job) && len(o.Pods) == 0:
		text := "another controller makes the pods, which name this job"
		if o.NoWebhook {
			text += "; the operator's webhook is off, without which they get no sidecar: the administrator turns it on (webhook.enabled of the chart)"
		}
		o.state(&p, v1alpha1.ConditionPending, reasonExpected, text+o.lacking())
	case o.Batch == nil && !external(o.Job):
		o.state(&p, v1alpha1.ConditionPending, reasonCreated, "pods are being made")
	case o.batchHeld():
		reason, text := reasonSuspended, "runPolicy.suspend is true"
		if !suspended(o.Job) {
			reason, text = reasonQueued, "a queueing controller holds Job "+o.Batch.Name
		}
		o.state(&p, v1alpha1.ConditionSuspended, reason, text)
	case *p.Status.Ranks.Running+*p.Status.Ranks.Succeeded == o.Job.Spec.Ranks:
		reason, text := o.running()
		o.state(&p, v1alpha1.ConditionRunning, reason, text)
	default:
		reason, text := o.waiting()
		o.state(&p, v1alpha1.ConditionPending, reason, text)
		if n, left := o.absent(); n > 0 && left > 0 && (p.Requeue == 0 || left < p.Requeue) {
			p.Requeue = left
		}
		if f, left := o.vanished(); f != nil && (p.Requeue == 0 || left < p.Requeue) {
			p.Requeue = max(left, time.Millisecond)
		}
	}
	return p
}

// restarting waits for the end of the failed attempt, then counts it.
func (o *Observation) restarting(p Plan, c *metav1.Condition) Plan {
	if f := o.decided(); f != nil {
		return o.fail(p, f)
	}
	late, limited := o.deadline(&p)
	if limited && late <= 0 {
		return o.fail(p, &v1alpha1.Failure{Reason: v1alpha1.ReasonDeadlineExceeded, Message: o.overdue()})
	}
	p = o.removed(p, c)
	if limited && (p.Requeue == 0 || late < p.Requeue) {
		p.Requeue = late
	}
	return p
}

// removed goes on with a restart when the failed attempt has been removed.
func (o *Observation) removed(p Plan, c *metav1.Condition) Plan {
	since := o.since(c.LastTransitionTime.Time)
	drained := isDrained(o.Job.Status.FirstFailure)
	left := removalPatience - since
	if drained { // the ranks of its pods write a checkpoint, from which the next attempt starts
		left += inject.Grace(&o.Job.Spec.Template.Spec)
	}
	switch {
	case o.Batch != nil:
		p.Action = Remove // its deletion is heard of, however long it takes
		return p
	case len(o.Pods) > 0 && left > 0:
		p.Requeue = left
		return p
	}
	n, text := restarts(o.Job)+1, ""
	wait := backoff(n)
	if drained {
		n = drains(o.Job) + 1
		wait, text = backoffMin, fmt.Sprintf("start %d after a drain, which spends no restart: %s", n, o.Job.Status.FirstFailure.Sentence())
	}
	if wait -= since; wait > 0 {
		p.Requeue = wait
		return p
	}
	p.Action = Remove // what is left of it
	if drained {
		// Its pods were taken away, and nothing has failed.
		p.Status.Drains, p.Status.FirstFailure = &n, nil
	} else {
		p.Status.Restarts, text = &n, fmt.Sprintf("restart %d of at most %d", n, limit(o.Job))
	}
	p.Status.Transports = nil
	p.Status.JobName = ""
	o.state(&p, v1alpha1.ConditionPending, reasonRestarted, text)
	p.Requeue = time.Millisecond
	return p
}

// skewMax is how far the clocks of replicas are believed to differ.
const skewMax = time.Minute

// since is the time since at, which another replica may have written by its own clock:
// when that is far ahead, nobody waits until ours is there.
func (o *Observation) since(at time.Time) time.Duration {
	if d := o.Now.Sub(at); d > -skewMax {
		return d
	}
	return math.MaxInt64
}

// Time from a failure to the start of restart n: it doubles from one to the
// next, so that a job that fails at once neither floods the cluster nor uses up
// its restarts while a node recovers.
const (
	backoffMin = time.Second
	backoffMax = 5 * time.Minute
)

func backoff(n int32) time.Duration {
	return min(backoffMin<<min(n-1, 10), backoffMax)
}

// decided is the failure for which the attempt's Job has been ended, of which the status
// does not tell: the operator that ended it was killed before it could write.
func (o *Observation) decided() *v1alpha1.Failure {
	if o.Batch == nil {
		return nil
	}
	f := desired.CauseOf(o.Batch)
	if f != nil && f.Reason == reasonSucceeded {
		return nil
	}
	if f != nil && f.Rank != nil && (*f.Rank < 0 || *f.Rank >= o.Job.Spec.Ranks) {
		f.Rank = nil // somebody else wrote it
	}
	return f
}

// decidedWell reports whether the attempt's Job has been ended since all ranks had ended
// well, of which the status does not tell, for the same reason.
func (o *Observation) decidedWell() bool {
	if o.Batch == nil {
		return false
	}
	f := desired.CauseOf(o.Batch)
	return f != nil && f.Reason == reasonSucceeded
}

// Cause is why a plan ends a Job: its failure, or that all ranks have ended well.
func Cause(p *Plan) *v1alpha1.Failure {
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionComplete) {
		return &v1alpha1.Failure{Reason: reasonSucceeded}
	}
	return p.Status.FirstFailure
}

// fail ends the job for good.
func (o *Observation) fail(p Plan, f *v1alpha1.Failure) Plan {
	number := AttemptOf(o.Job)
	f.Attempt = &number
	p.Status.FirstFailure = f
	text := f.Sentence()
	if n := limit(o.Job); n > 0 && restarts(o.Job) >= n {
		text += fmt.Sprintf(" (after %d restarts, the limit)", n)
	}
	o.state(&p, v1alpha1.ConditionFailed, f.Reason, text)
	return o.end(p)
}

func (o *Observation) end(p Plan) Plan {
	now := metav1.NewTime(o.Now)
	p.Status.CompletionTime = &now
	p.Action, p.Requeue = Stop, 0
	return p
}

// finished sees to the remains: pods that still run, then the time to live.
func (o *Observation) finished(p Plan) Plan {
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionFailed) && p.Status.Ranks != nil {
		p.Status.Ranks = o.remains(p.Status.Ranks)
	}
	if o.Transports != nil {
		p.Status.Transports = o.Transports
	}
	p.Action = Stop
	ttl, end := o.Job.Spec.RunPolicy.TTLSecondsAfterFinished, o.Job.Status.CompletionTime
	if ttl == nil || end == nil {
		return p
	}
	if left := end.Add(time.Duration(*ttl) * time.Second).Sub(o.Now); left > 0 {
		p.Requeue = left
	} else {
		p.Action = Delete
	}
	return p
}

// Finished reports whether a job is over.
func Finished(s *v1alpha1.MPIJobStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionComplete) ||
		meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionFailed)
}

// states are the conditions of which one is True.
var states = []string{
	v1alpha1.ConditionPending, v1alpha1.ConditionSuspended, v1alpha1.ConditionRunning,
	v1alpha1.ConditionRestarting, v1alpha1.ConditionComplete, v1alpha1.ConditionFailed,
}

// state makes one condition True and the others, if they are there, False.
func (o *Observation) state(p *Plan, kind, reason, message string) {
	at := metav1.NewTime(o.Now)
	for _, s := range states {
		c := metav1.Condition{Type: s, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: o.Job.Generation, LastTransitionTime: at}
		if s == kind {
			c.Status = metav1.ConditionTrue
		} else if old := meta.FindStatusCondition(p.Status.Conditions, s); old == nil || old.Status == metav1.ConditionFalse {
			continue // it stays as it is: what ended it is its reason
		}
		meta.SetStatusCondition(&p.Status.Conditions, c)
	}
}

// deadline is the time that is left to the job, if it has a limit and has begun.
func (o *Observation) deadline(p *Plan) (time.Duration, bool) {
	s := o.Job.Spec.RunPolicy.ActiveDeadlineSeconds
	if s == nil || p.Status.StartTime == nil {
		return 0, false
	}
	return p.Status.StartTime.Add(time.Duration(min(*s, deadlineMax)) * time.Second).Sub(o.Now), true
}

// pendingDeadline is the time that is left for an attempt's ranks to be started,
// while they have not been and there is a limit.
func (o *Observation) pendingDeadline(p *Plan) (time.Duration, bool) {
	s, start := o.Job.Spec.RunPolicy.PendingDeadlineSeconds, o.start()
	if s == nil || start == nil || o.held() || p.Status.Ranks == nil || *p.Status.Ranks.Pending == 0 {
		return 0, false
	}
	if first := p.Status.StartTime; AttemptOf(o.Job) == 0 && first != nil && first.Before(start) && start.Sub(o.Now) > skewMax {
		start = first // the other one's clock is ahead; else the pods were begun anew
	}
	return start.Add(time.Duration(min(*s, deadlineMax)) * time.Second).Sub(o.Now), true
}

// unplaced is the failure of an attempt that has no time left to be started.
func (o *Observation) unplaced(left time.Duration) (*v1alpha1.Failure, bool) {
	if left > 0 {
		return nil, false
	}
	reason, text := o.waiting()
	number := AttemptOf(o.Job)
	return &v1alpha1.Failure{
		Attempt: &number,
		Reason:  v1alpha1.ReasonPendingDeadlineExceeded,
		Message: fmt.Sprintf("not all ranks were started within %d s: %s: %s", *o.Job.Spec.RunPolicy.PendingDeadlineSeconds, reason, text),
	}, true
}

// deadlineMax is what the schema allows: more would overflow a Duration.
const deadlineMax = 1<<31 - 1

// start is when the attempt's pods began to be made.
func (o *Observation) start() *metav1.Time {
	switch {
	case o.Batch != nil:
		return o.batchStart()
	case external(o.Job) && len(o.Pods) > 0:
		return &o.Pods[0].CreationTimestamp
	}
	return nil
}

// external reports whether another controller makes the job's pods.
func external(j *v1alpha1.MPIJob) bool { return j.Spec.PodManagement == v1alpha1.PodsExternal }

// allSucceeded reports whether every rank has ended well.
func (o *Observation) allSucceeded() bool { return *o.ranks().Succeeded == o.Job.Spec.Ranks }

// held reports whether the job is to have no pods now, by its own word or a
// queue's.
func (o *Observation) held() bool {
	if external(o.Job) {
		return false
	}
	return suspended(o.Job) || o.batchHeld()
}

// batchHeld reports whether the batch Job is suspended, whoever wants it so.
func (o *Observation) batchHeld() bool {
	return o.Batch != nil && o.Batch.Spec.Suspend != nil && *o.Batch.Spec.Suspend
}

// Held reports whether the batch Job is suspended: it has no pods that run.
func Held(o *Observation) bool { return o.batchHeld() }

func suspended(j *v1alpha1.MPIJob) bool { s := j.Spec.RunPolicy.Suspend; return s != nil && *s }

func limit(j *v1alpha1.MPIJob) int32 {
	if l := j.Spec.RunPolicy.RestartLimit; l != nil {
		return *l
	}
	return 0
}

// Over reports whether a batch Job has ended, or is about to.
func Over(b *batchv1.Job) bool {
	for _, c := range b.Status.Conditions {
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
			if c.Status == "True" {
				return true
			}
		}
	}
	return false
}

// Fails reports whether a plan is about a failure that was not known before.
func Fails(o *Observation, p *Plan) bool {
	for _, c := range []string{v1alpha1.ConditionFailed, v1alpha1.ConditionRestarting} {
		if meta.IsStatusConditionTrue(p.Status.Conditions, c) && !meta.IsStatusConditionTrue(o.Job.Status.Conditions, c) {
			return true
		}
	}
	return false
}
