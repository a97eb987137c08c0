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

// Action is what the controller has to do.
type Action int

// Actions.
const (
	Wait   Action = iota // do nothing
	Apply                // make the attempt's objects, and update those that may change
	Remove               // delete the attempt's Job and its pods, for a restart
	Stop                 // the job is over: end running pods, keep ended ones so that their logs can be read
	Delete               // delete the MPIJob: its time to live has ended
)

// Plan is the next step for a job.
type Plan struct {
	Status  v1alpha1.MPIJobStatus // written if it differs from the job's
	Action  Action
	Requeue time.Duration // time to the next reconciliation; 0: at the next change
	// Reads is the node of the pod for whose end the verdict waits; empty if it waits
	// for none.
	Reads string
}

// removalPatience is how long a restart waits for the old pods. Pods of a lost node
// stay for minutes, and the new attempt does not need their names.
const removalPatience = 20 * time.Second

// readMax bounds how much of the pod's grace period the verdict on an attempt waits for
// the pod of its first failure.
const readMax = 60 * time.Second

// readPatience returns how long the verdict on an attempt waits for the end of the pod
// of its first failure. The pod's sidecar, whose termination message has the cause, may
// take the whole grace period to end, and the output of a pod is lost when the pod is
// deleted. settle is added because the report of the end takes a moment to arrive.
func (o *Observation) readPatience() time.Duration {
	return min(inject.Grace(&o.Job.Spec.Template.Spec), readMax) + settle
}

// Next plans the next step for a job. The API server accepts its status whatever the
// pods have reported.
func Next(o *Observation) Plan {
	o.restoreEnded()
	o.arrange()
	p := o.next()
	if p.Status.EndedPods = nil; !Finished(&p.Status) {
		p.Status.EndedPods = o.endedPods()
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
		// As in batch/v1, a suspended job starts afresh. This does not apply if a queue
		// holds a later attempt: the deadline covers all attempts.
		p.Status.StartTime = nil
	case p.Status.StartTime == nil && !s.IsZero():
		p.Status.StartTime = s
		if s.After(o.Now) { // the clock of the other machine is ahead, and the deadline must not wait for it
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

// succeed plans the end of a job whose ranks have all ended with 0, unless a sidecar
// reports a failure.
func (o *Observation) succeed(p Plan) Plan {
	if left := o.lastWords(settle); left > 0 {
		p.Requeue = left
		return p
	}
	if f := o.reportedFailure(); f != nil {
		return o.failing(p, f, true)
	}
	return o.completed(p)
}

// completed ends the job as Complete.
func (o *Observation) completed(p Plan) Plan {
	o.state(&p, v1alpha1.ConditionComplete, reasonSucceeded, fmt.Sprintf("all %d ranks ended with exit code 0", o.Job.Spec.Ranks))
	p.Status.Ranks = counts(0, 0, o.Job.Spec.Ranks, 0) // the cache may not have the end of the last pods yet
	return o.stopPlan(p)
}

// failing plans the next step for a job in which a failure was found.
func (o *Observation) failing(p Plan, f *v1alpha1.Failure, settled bool) Plan {
	switch {
	case !settled:
		p.Requeue = time.Second
		return p
	case o.awaitsReport(f) && o.waited() < o.readPatience():
		p.Status.FirstFailure = f
		p.Requeue, p.Reads = time.Second, f.Node
		return p
	case !external(o.Job) && (isDrained(f) || restarts(o.Job) < limit(o.Job)) && !f.Final() && o.Job.Spec.RunPolicy.Restarts(f):
		p.Status.FirstFailure = f
		o.state(&p, v1alpha1.ConditionRestarting, f.Reason, f.Sentence())
		p.Requeue = time.Millisecond // its pods are removed after the status has the reason
		return p
	}
	return o.fail(p, f)
}

// progress plans the next step for a job without a failure.
func (o *Observation) progress(p Plan) Plan {
	if o.NoProfile && o.Batch == nil && !(external(o.Job) && Prepared(o.Job)) { // otherwise the profile has been read already
		o.state(&p, v1alpha1.ConditionPending, v1alpha1.ReasonProfileMissing, fmt.Sprintf("FabricProfile %s does not exist", o.Job.Spec.ProfileName))
		return p
	}
	if left := o.wayLeft(); left > 0 && o.Batch == nil { // the watch reports their end
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

// restarting waits for the end of the failed attempt, and then counts the restart.
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

// removed continues a restart when the failed attempt has been removed.
func (o *Observation) removed(p Plan, c *metav1.Condition) Plan {
	since := o.since(c.LastTransitionTime.Time)
	drained := isDrained(o.Job.Status.FirstFailure)
	left := removalPatience - since
	if drained { // its ranks write a checkpoint, from which the next attempt starts
		left += inject.Grace(&o.Job.Spec.Template.Spec)
	}
	switch {
	case o.Batch != nil:
		p.Action = Remove // the watch reports the end of the deletion
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
	p.Action = Remove // the objects that are left
	if drained {
		// Its pods were taken away; no rank has failed.
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

// skewMax is the assumed maximum difference between the clocks of replicas.
const skewMax = time.Minute

// since returns the time since at, which another replica may have written by its own
// clock. If at is more than skewMax ahead, since returns the maximum, so that no wait
// depends on that clock.
func (o *Observation) since(at time.Time) time.Duration {
	if d := o.Now.Sub(at); d > -skewMax {
		return d
	}
	return math.MaxInt64
}

// Time from a failure to the start of restart n. It doubles with each restart, so that
// a job that fails at once neither floods the cluster nor uses up its restarts while a
// node recovers.
const (
	backoffMin = time.Second
	backoffMax = 5 * time.Minute
)

func backoff(n int32) time.Duration {
	return min(backoffMin<<min(n-1, 10), backoffMax)
}

// decided returns the failure that is recorded in the attempt's Job as the cause of its
// end but not in the status: the operator that ended the Job was killed before it wrote
// the status.
func (o *Observation) decided() *v1alpha1.Failure {
	if o.Batch == nil {
		return nil
	}
	f := desired.CauseOf(o.Batch)
	if f != nil && f.Reason == reasonSucceeded {
		return nil
	}
	if f != nil && f.Rank != nil && (*f.Rank < 0 || *f.Rank >= o.Job.Spec.Ranks) {
		f.Rank = nil // another client wrote it
	}
	return f
}

// decidedWell reports whether the attempt's Job records a successful end that the
// status does not have, for the same reason.
func (o *Observation) decidedWell() bool {
	if o.Batch == nil {
		return false
	}
	f := desired.CauseOf(o.Batch)
	return f != nil && f.Reason == reasonSucceeded
}

// Cause returns why a plan ends a Job: its failure, or the success of all ranks.
func Cause(p *Plan) *v1alpha1.Failure {
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionComplete) {
		return &v1alpha1.Failure{Reason: reasonSucceeded}
	}
	return p.Status.FirstFailure
}

// fail ends the job without another restart.
func (o *Observation) fail(p Plan, f *v1alpha1.Failure) Plan {
	number := AttemptOf(o.Job)
	f.Attempt = &number
	p.Status.FirstFailure = f
	text := f.Sentence()
	if n := limit(o.Job); n > 0 && restarts(o.Job) >= n {
		text += fmt.Sprintf(" (after %d restarts, the limit)", n)
	}
	o.state(&p, v1alpha1.ConditionFailed, f.Reason, text)
	return o.stopPlan(p)
}

// stopPlan returns p with the end of the job.
func (o *Observation) stopPlan(p Plan) Plan {
	now := metav1.NewTime(o.Now)
	p.Status.CompletionTime = &now
	p.Action, p.Requeue = Stop, 0
	return p
}

// finished plans the steps after the end of a job: ending running pods, and deleting
// the job at the end of its time to live.
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

// states are the conditions of which exactly one is True.
var states = []string{
	v1alpha1.ConditionPending, v1alpha1.ConditionSuspended, v1alpha1.ConditionRunning,
	v1alpha1.ConditionRestarting, v1alpha1.ConditionComplete, v1alpha1.ConditionFailed,
}

// state makes one condition True, and the others False if they exist.
func (o *Observation) state(p *Plan, kind, reason, message string) {
	at := metav1.NewTime(o.Now)
	for _, s := range states {
		c := metav1.Condition{Type: s, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: o.Job.Generation, LastTransitionTime: at}
		if s == kind {
			c.Status = metav1.ConditionTrue
		} else if old := meta.FindStatusCondition(p.Status.Conditions, s); old == nil || old.Status == metav1.ConditionFalse {
			continue // its reason stays that of its end
		}
		meta.SetStatusCondition(&p.Status.Conditions, c)
	}
}

// deadline returns the time that is left to the job; false if it has no limit or has
// not started.
func (o *Observation) deadline(p *Plan) (time.Duration, bool) {
	s := o.Job.Spec.RunPolicy.ActiveDeadlineSeconds
	if s == nil || p.Status.StartTime == nil {
		return 0, false
	}
	return p.Status.StartTime.Add(time.Duration(min(*s, deadlineMax)) * time.Second).Sub(o.Now), true
}

// pendingDeadline returns the time that is left to start the attempt's ranks; false if
// they have been started or there is no limit.
func (o *Observation) pendingDeadline(p *Plan) (time.Duration, bool) {
	s, start := o.Job.Spec.RunPolicy.PendingDeadlineSeconds, o.start()
	if s == nil || start == nil || o.held() || p.Status.Ranks == nil || *p.Status.Ranks.Pending == 0 {
		return 0, false
	}
	if first := p.Status.StartTime; AttemptOf(o.Job) == 0 && first != nil && first.Before(start) && start.Sub(o.Now) > skewMax {
		start = first // the other clock is ahead; otherwise the pods were started anew
	}
	return start.Add(time.Duration(min(*s, deadlineMax)) * time.Second).Sub(o.Now), true
}

// unplaced returns the failure of an attempt whose time to start has run out.
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

// deadlineMax is the maximum of the schema: larger values would overflow a Duration.
const deadlineMax = 1<<31 - 1

// start returns when the creation of the attempt's pods began.
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

// allSucceeded reports whether every rank has ended with 0.
func (o *Observation) allSucceeded() bool { return *o.ranks().Succeeded == o.Job.Spec.Ranks }

// held reports whether the job must have no pods now, because it is suspended or a
// queue holds it.
func (o *Observation) held() bool {
	if external(o.Job) {
		return false
	}
	return suspended(o.Job) || o.batchHeld()
}

// batchHeld reports whether the batch Job is suspended, by the user or by a queue.
func (o *Observation) batchHeld() bool {
	return o.Batch != nil && o.Batch.Spec.Suspend != nil && *o.Batch.Spec.Suspend
}

// Held reports whether the batch Job is suspended and has no running pods.
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

// Fails reports whether a plan is about a failure that the job's status does not have.
func Fails(o *Observation, p *Plan) bool {
	for _, c := range []string{v1alpha1.ConditionFailed, v1alpha1.ConditionRestarting} {
		if meta.IsStatusConditionTrue(p.Status.Conditions, c) && !meta.IsStatusConditionTrue(o.Job.Status.Conditions, c) {
			return true
		}
	}
	return false
}
