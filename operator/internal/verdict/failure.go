package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// settle is how long after the first sign of a failure its cause is waited for: the end
// of a container that was caused by another one's end may reach the caches first.
const settle = 3 * time.Second

// failure returns what ended the attempt; nil if nothing has. It is settled if no later
// report can change it.
func (o *Observation) failure() (f *v1alpha1.Failure, settled bool) {
	since := o.firstSign()
	if p := cmp.Or(o.firstDeleted(since), o.disrupted(since)); p != nil {
		return o.lost(p), true // the pod is deleted before all have ended
	}
	gone := o.gone()
	if f, left := o.vanished(); f != nil && left <= 0 {
		gone = f
	}
	if p := o.rejectedTooOften(); p != nil && gone == nil {
		gone = o.rejectedFailure(p)
	}
	batch := o.batchCondition(batchv1.JobFailed)
	if since.IsZero() && gone == nil && batch == nil {
		return nil, false
	}
	switch {
	case !since.IsZero():
		f = o.blame()
	case gone != nil:
		f = gone
	}
	if f == nil || o.jobEnded(batch) && f.Reason == string(podlife.Terminated) { // the Job ended them, and its condition has the cause
		f = o.ofBatch(batch)
	}
	number := AttemptOf(o.Job)
	f.Attempt = &number
	return f, since.IsZero() || o.waited() >= settle || o.allTerminal()
}

// Sign reports whether a container or pod of the attempt has failed.
func Sign(o *Observation) bool {
	o.restoreEnded()
	o.arrange()
	return !o.firstSign().IsZero()
}

// waited returns the time since the first sign of a failure was seen.
func (o *Observation) waited() time.Duration {
	if o.Noticed.IsZero() {
		return 0
	}
	return o.Now.Sub(o.Noticed)
}

// firstSign returns when the first container or pod failed, according to the cluster;
// zero if none has. The result is not later than Noticed, even if a node's clock is
// ahead.
func (o *Observation) firstSign() time.Time {
	var first time.Time
	sign := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for _, p := range o.counting() {
		switch {
		case o.exited(p):
			sign(o.endOf(o.application(p).State.Terminated, p))
		case !o.succeeded(p) && o.daemonFailed(p) != nil:
			sign(o.endOf(o.daemonFailed(p), p))
		case p.Status.Phase == corev1.PodFailed:
			sign(o.lastChange(p))
		}
	}
	return o.known(first)
}

// counting returns the pods that count: of several pods with one number, the first that
// a node accepted and that was not deleted before it started. The others are
// replacements for it, or a second pod of another controller with the same number,
// which gets no certificate.
func (o *Observation) counting() []*corev1.Pod {
	place := map[int32]int{}
	var all []*corev1.Pod
	for _, p := range o.Pods {
		i := o.index(p)
		at, seen := place[i]
		switch {
		case o.rejected(p):
		case !seen || i < 0:
			place[i] = len(all)
			all = append(all, p)
		case all[at].DeletionTimestamp != nil && !o.started(all[at]):
			all[at] = p
		}
	}
	return all
}

// known returns at, but not later than Noticed, because the event has been noticed. A
// difference up to skewMax is left, since times of one clock are compared with each
// other.
func (o *Observation) known(at time.Time) time.Time {
	if !o.Noticed.IsZero() && at.Sub(o.Noticed) > skewMax {
		return o.Noticed
	}
	return at
}

// endOf returns when a container ended. If the kubelet did not see the end, it reports
// no time (ContainerStatusUnknown); the last change of the pod is used then.
func (o *Observation) endOf(t *corev1.ContainerStateTerminated, p *corev1.Pod) time.Time {
	if !t.FinishedAt.IsZero() {
		return t.FinishedAt.Time
	}
	return o.lastChange(p)
}

// lastChange returns the latest time in a pod's status.
func (o *Observation) lastChange(p *corev1.Pod) time.Time {
	last := p.CreationTimestamp.Time
	if s := p.Status.StartTime; s != nil && s.After(last) {
		last = s.Time
	}
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	if last.IsZero() {
		return o.Now
	}
	return last
}

func (o *Observation) succeeded(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
}

// daemonFailed returns the end of a pod's sidecar if its exit code is not 0; nil
// otherwise.
func (o *Observation) daemonFailed(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if t := ended(sidecar(p)); t != nil && t.ExitCode != 0 {
		return t
	}
	return nil
}

func (o *Observation) allTerminal() bool {
	for _, p := range o.Pods {
		if !Terminal(p) {
			return false
		}
	}
	return true
}

// blame determines the failure from the reports of launchers and sidecars, and adds
// what only the cluster knows, such as the reason for which a process was killed.
func (o *Observation) blame() *v1alpha1.Failure {
	var reports []podlife.Report
	pods := map[int]*corev1.Pod{}
	for _, p := range o.counting() {
		if i := o.index(p); i >= 0 {
			reports = append(reports, o.report(p, i))
			pods[int(i)] = p
		}
	}
	v := podlife.Blame(reports)
	if v == nil {
		return o.ofPods()
	}
	rank, code, at := int32(v.Rank), int32(v.Code), metav1.NewTime(v.Time)
	f := &v1alpha1.Failure{ExitCode: &code, Reason: string(v.Reason), Message: v.Text, Time: &at}
	if rank >= 0 && rank < o.Job.Spec.Ranks {
		f.Rank = &rank
	}
	if p := pods[v.Pod]; p != nil {
		f.Output = o.output(p)
		if o.locate(f, p); v.Reason == podlife.Terminated && f.Reason == string(podlife.Terminated) && p.DeletionTimestamp == nil && !o.hooked(p) {
			f.Message = "the container was told to end, and neither the job nor the pod was (a failed probe?): its rank " + f.Message
		}
	} else if v.Pod >= 0 {
		f.Pod = fmt.Sprint(desired.AttemptName(o.Job.Name, AttemptOf(o.Job)), "-", v.Pod)
		f.Message += " (its pod is gone)"
	}
	return f
}

// lastWords returns how much longer a job whose ranks have all ended with 0 waits for
// the reports of its sidecars, at most patience after that end. The cache may have the
// end of the Job before that of the last pods, and a sidecar ends after its ranks.
func (o *Observation) lastWords(patience time.Duration) time.Duration {
	ended := o.lastEnd()
	if c := o.batchCondition(batchv1.JobComplete); c != nil {
		ended = c.LastTransitionTime.Time
	}
	if o.allTerminal() {
		return 0
	}
	// Clocks differ: a clock that is behind must not hold the job up.
	if waited := o.Now.Sub(ended); waited >= 0 && waited < patience {
		return patience - waited
	}
	return 0
}

// lastEnd returns when the last application ended.
func (o *Observation) lastEnd() time.Time {
	var last time.Time
	for _, p := range o.counting() {
		if c := o.application(p); c != nil && c.State.Terminated != nil && c.State.Terminated.FinishedAt.After(last) {
			last = c.State.Terminated.FinishedAt.Time
		}
	}
	return last
}

// reportedFailure returns the failure that sidecars have reported although every rank
// ended with 0. A rank that ended without Close, or that aborted, fails the job
// regardless of its exit code, as with outrigger run. The exit code of a sidecar does
// not count if its ranks had ended.
func (o *Observation) reportedFailure() *v1alpha1.Failure {
	for _, p := range o.Pods {
		if m := o.sidecarWords(p); m == nil || len(m.Failures) == 0 {
			continue
		}
		if f := o.blame(); f != nil { // nil: the report is of a pod that does not count
			number := AttemptOf(o.Job)
			f.Attempt = &number
			return f
		}
	}
	return nil
}

// sidecarWords returns the termination message of a pod's sidecar, or the answer of a
// running sidecar that was asked at the end of the job; nil if there is neither.
func (o *Observation) sidecarWords(p *corev1.Pod) *podlife.Message {
	if t := ended(sidecar(p)); t != nil {
		return message(t.Message, podlife.KindSidecar)
	}
	if f := o.Said[p.UID]; f != nil {
		return &podlife.Message{Kind: podlife.KindSidecar, Failures: []podlife.Failure{*f}}
	}
	return nil
}

// report collects what a pod's containers have reported at their end.
func (o *Observation) report(p *corev1.Pod, index int32) podlife.Report {
	first, count := desired.Ranks(&o.Job.Spec, index)
	r := podlife.Report{Pod: int(index), FirstRank: int(first), Ranks: int(count)}
	if t := ended(o.application(p)); t != nil {
		r.Application = ending(t)
		if r.Application.Text = ""; slices.Contains(unstarted, t.Reason) { // otherwise the exit code describes the end
			r.Application.Text = fmt.Sprintf("exited with code %d: %s: %s", t.ExitCode, t.Reason, t.Message)
		}
		r.Launcher = message(t.Message, podlife.KindRanks)
	}
	if t := ended(sidecar(p)); t != nil {
		r.Daemon = ending(t)
	}
	r.Sidecar = o.sidecarWords(p)
	return r
}

// unstarted are the reasons of containers whose program the runtime could not start.
// The message is the runtime's in that case.
var unstarted = []string{"StartError", "ContainerCannotRun"}

// output returns the first and last output lines of a pod's ranks, as its launcher has
// recorded them.
func (o *Observation) output(p *corev1.Pod) string {
	if t := ended(o.application(p)); t != nil {
		if m := message(t.Message, podlife.KindRanks); m != nil {
			return m.Output
		}
	}
	return ""
}

func ending(t *corev1.ContainerStateTerminated) *podlife.Ending {
	e := &podlife.Ending{Code: int(t.ExitCode), Text: t.Reason, Time: t.FinishedAt.Time}
	if t.Signal != 0 {
		e.Signal = podlife.SignalName(int(t.Signal))
	}
	return e
}

// message parses a container's termination message; nil if it is not a message of the
// given kind. A container may write any text there.
func message(text string, kind podlife.Kind) *podlife.Message {
	m, err := podlife.Parse([]byte(text))
	if err != nil || m.Kind != kind {
		return nil
	}
	return m
}

// locate adds the pod and node of a failure, and its cause if the cluster ended the
// pod.
func (o *Observation) locate(f *v1alpha1.Failure, p *corev1.Pod) {
	f.Pod, f.Node = p.Name, p.Spec.NodeName
	at := o.Now
	if f.Time != nil {
		at = o.known(f.Time.Time)
	}
	switch {
	case killedForMemory(o.application(p)):
		f.Reason, f.Message = v1alpha1.ReasonOutOfMemory, "the application used more memory than its limit"+limitOf(p.Spec.Containers, o.ApplicationName(p))+": "+f.Message
	case killedForMemory(sidecar(p)):
		f.Reason, f.Message = v1alpha1.ReasonOutOfMemory, "the sidecar used more memory than its limit"+limitOf(p.Spec.InitContainers, names.ContainerSidecar)+": "+f.Message
	case overPodDeadline(p):
		f.Reason, f.Message = v1alpha1.ReasonDeadlineExceeded, "the pod has used up its template's activeDeadlineSeconds: "+p.Status.Message
	case overStorage(p):
		f.Reason, f.Message, f.ExitCode = v1alpha1.ReasonOutOfStorage, "the pod used more local storage than its limits: "+p.Status.Message, nil
	case o.nodeless(p):
		f.Reason, f.ExitCode = v1alpha1.ReasonPodLost, nil
		f.Message = fmt.Sprintf("the template's nodeName is %s, and there is no such node: leave it out, or name one that there is (%s)", p.Spec.NodeName, disruption(p))
	case disruption(p) != "":
		o.drained(f, disruption(p))
	case f.Reason == string(podlife.SidecarLost) && forgotten(sidecar(p)):
		f.Reason, f.Message = v1alpha1.ReasonPodLost, "the node has lost the pod's containers: it was stopped, or its runtime"
	case deletedBefore(p, at):
		o.drained(f, textDeleted)
	case o.hooked(p):
		o.ofHook(f, p)
	case f.Reason == string(podlife.RankExited):
		quote(f)
		f.Message += "; its output: `" + logsOf(p, o.ApplicationName(p)) + "`"
	}
}

// logsOf returns the command that shows a container's output.
func logsOf(p *corev1.Pod, container string) string {
	return fmt.Sprintf("kubectl logs %s -c %s", p.Name, container)
}

// limitOf returns the text of a container's memory limit; empty if it is not known.
func limitOf(containers []corev1.Container, name string) string {
	for i := range containers {
		if limit, ok := containers[i].Resources.Limits[corev1.ResourceMemory]; ok && containers[i].Name == name {
			return " of " + limit.String()
		}
	}
	return ""
}

// overPodDeadline reports whether the kubelet has ended a pod for the deadline in the
// pod's own spec.
func overPodDeadline(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
}

// storage are the kubelet's messages for a pod that it evicts because the pod exceeded
// its own limits. The messages for evictions caused by the node differ; such pods count
// as drained.
var storage = []string{"exceeds the limit", "exceeds the total limit of containers", "exceeded its local ephemeral storage limit"}

// overStorage reports whether the kubelet has evicted a pod because its volumes or
// containers exceeded their limits. The same would happen on another node.
func overStorage(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" &&
		slices.ContainsFunc(storage, func(words string) bool { return strings.Contains(p.Status.Message, words) })
}

// nodeless reports whether a pod was deleted because the node to which the template
// binds the job's pods does not exist. New pods would be deleted as well.
func (o *Observation) nodeless(p *corev1.Pod) bool {
	return !external(o.Job) && p.Spec.NodeName != "" && p.Spec.NodeName == o.Job.Spec.Template.Spec.NodeName &&
		strings.HasPrefix(disruption(p), "DeletionByPodGC: ")
}

// drained marks a failure as that of an attempt whose pods were taken away. The
// operator does not replace pods of another controller, so their reason is PodLost.
func (o *Observation) drained(f *v1alpha1.Failure, text string) {
	f.Reason, f.Message, f.ExitCode = v1alpha1.ReasonDrained, text, nil
	if external(o.Job) {
		f.Reason = v1alpha1.ReasonPodLost
	}
}

// isDrained reports whether a failure was not caused by the ranks: their pods were
// taken away.
func isDrained(f *v1alpha1.Failure) bool { return f != nil && f.Reason == v1alpha1.ReasonDrained }

const textDeleted = "the pod was deleted while its ranks were at work"

// forgotten reports whether the node has no record of a container's end: it has only
// found that the container is missing.
func forgotten(c *corev1.ContainerStatus) bool {
	t := ended(c)
	return t != nil && (t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown")
}

func killedForMemory(c *corev1.ContainerStatus) bool {
	t := ended(c)
	return t != nil && t.Reason == "OOMKilled"
}

// disruption returns why Kubernetes took the pod away; empty if it did not.
func disruption(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
		return "Evicted: " + p.Status.Message
	}
	return ""
}

// deletedBefore reports whether the pod's deletion was requested before at.
func deletedBefore(p *corev1.Pod, at time.Time) bool {
	return p.DeletionTimestamp != nil && !asked(p).After(at.Add(time.Second)) // API times are rounded down to whole seconds
}

// asked returns when a pod's deletion was requested. DeletionTimestamp is the end of
// its grace period.
func asked(p *corev1.Pod) time.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

// takenAt returns when the removal of a pod began: when its deletion was requested, or
// when Kubernetes set the DisruptionTarget condition.
func takenAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp != nil {
		return asked(p)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// firstDeleted returns the first pod whose deletion was requested while its ranks ran,
// before the first sign of a failure; nil if there is none.
func (o *Observation) firstDeleted(sign time.Time) *corev1.Pod {
	if o.Batch != nil && Over(o.Batch) {
		return nil // its controller deletes the remaining pods
	}
	var first *corev1.Pod
	for _, p := range o.counting() {
		if p.DeletionTimestamp == nil || !o.started(p) || o.succeeded(p) || !sign.IsZero() && asked(p).After(sign) {
			continue
		}
		if first == nil || asked(p).Before(asked(first)) {
			first = p
		}
	}
	return first
}

// disrupted returns a pod that Kubernetes began to take away before the first sign of a
// failure; nil if there is none. Ranks of other pods may have ended first, with any
// exit code, because the ranks of this pod told them to end.
func (o *Observation) disrupted(sign time.Time) *corev1.Pod {
	if external(o.Job) {
		return nil
	}
	for _, p := range o.Pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && o.started(p) && !o.succeeded(p) &&
				!c.LastTransitionTime.IsZero() && (sign.IsZero() || !c.LastTransitionTime.After(sign)) {
				return p
			}
		}
	}
	return nil
}

// awaitsReport reports whether the pod of a failure is about to end, with a termination
// message that may change the verdict, and with output that its deletion would remove:
// either its application or its sidecar has ended, and the other has not. If neither
// has ended, or the pod's node is not Ready, the verdict does not wait.
func (o *Observation) awaitsReport(f *v1alpha1.Failure) bool {
	if isDrained(f) || o.Batch == nil {
		return false
	}
	for _, p := range o.Pods {
		if p.Name == f.Pod {
			gone := o.Lost != "" && p.Spec.NodeName == o.Lost || Terminal(p) || o.lingers(p) || p.DeletionTimestamp != nil || forgotten(o.application(p)) || forgotten(sidecar(p))
			return !gone && o.started(p) && (o.over(p) != (ended(sidecar(p)) != nil))
		}
	}
	return false
}

// over reports whether a pod's application has ended.
func (o *Observation) over(p *corev1.Pod) bool {
	c := o.application(p)
	return c != nil && c.State.Terminated != nil
}

func (o *Observation) lost(p *corev1.Pod) *v1alpha1.Failure {
	number, at := AttemptOf(o.Job), metav1.NewTime(takenAt(p))
	f := &v1alpha1.Failure{Attempt: &number, Time: &at}
	if i := o.index(p); i >= 0 {
		rank, _ := desired.Ranks(&o.Job.Spec, i)
		f.Rank = &rank
	}
	o.locate(f, p)
	return f
}

// textRejected is the start of the kubelet's message about a pod that it does not
// admit.
const textRejected = "Pod was rejected: "

// ofPods returns a failure that no program has reported.
func (o *Observation) ofPods() *v1alpha1.Failure {
	for _, p := range o.counting() {
		if p.Status.Phase != corev1.PodFailed && !o.exited(p) {
			continue
		}
		f := &v1alpha1.Failure{Reason: v1alpha1.ReasonUnknown, Message: fmt.Sprintf("%s %s", p.Status.Reason, p.Status.Message)}
		if strings.HasPrefix(p.Status.Message, textRejected) {
			f.Reason = v1alpha1.ReasonPodRejected
		}
		if c := failedInit(p); c != nil {
			t := c.State.Terminated
			f.Reason, f.ExitCode = v1alpha1.ReasonPodNotStarted, &t.ExitCode
			f.Message = fmt.Sprintf("init container %s ended with exit code %d: %s; its output: `%s`", c.Name, t.ExitCode, strings.TrimSpace(t.Reason+" "+t.Message), logsOf(p, c.Name))
		}
		o.locate(f, p)
		return f
	}
	return nil
}

// failedInit returns the first init container that ended with an exit code other than
// 0. The sidecar is left out, since it reports its own failures.
func failedInit(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && c.Name != names.ContainerSidecar {
			return c
		}
	}
	return nil
}

// gone returns the failure of an attempt whose Job has been deleted.
func (o *Observation) gone() *v1alpha1.Failure {
	if o.Batch == nil && o.Job.Status.JobName == desired.AttemptName(o.Job.Name, AttemptOf(o.Job)) {
		return &v1alpha1.Failure{Reason: v1alpha1.ReasonPodLost, Message: fmt.Sprintf("Job %s was deleted", o.Job.Status.JobName)}
	}
	return nil
}

// vanishedPatience is how long a pod that has existed may be missing: the report of its
// end may still arrive.
const vanishedPatience = 20 * time.Second

// vanished returns the failure of a job with pods of another controller, all of which
// have existed, if one of them is missing and its end is not known. No other pod can
// replace it. The failure counts when the returned time is not positive.
func (o *Observation) vanished() (*v1alpha1.Failure, time.Duration) {
	pending := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionPending)
	began := meta.FindStatusCondition(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if !external(o.Job) || began == nil || pending == nil || pending.Status != metav1.ConditionTrue {
		return nil, 0
	}
	i := slices.Index(o.podStates(), podAbsent)
	if i < 0 {
		return nil, 0
	}
	rank, _ := desired.Ranks(&o.Job.Spec, int32(i))
	return &v1alpha1.Failure{
		Rank: &rank, Reason: v1alpha1.ReasonPodLost, Message: fmt.Sprintf("pod number %d is gone, and how it ended is not known", i),
	}, vanishedPatience - o.missing()
}

// jobEnded reports whether the Job itself has ended running pods. A Job that gave up
// because pods had failed did not: the pods failed first.
func (o *Observation) jobEnded(c *batchv1.JobCondition) bool {
	return c != nil && (c.Reason != batchv1.JobReasonBackoffLimitExceeded || o.lastRejected() != nil)
}

// ofBatch returns the failure that the Job's condition reports, for the case that its
// pods report none.
func (o *Observation) ofBatch(c *batchv1.JobCondition) *v1alpha1.Failure {
	f := &v1alpha1.Failure{Reason: v1alpha1.ReasonUnknown}
	if c == nil {
		return f
	}
	f.Message = fmt.Sprintf("Job %s: %s: %s", o.Batch.Name, c.Reason, c.Message)
	switch c.Reason {
	case batchv1.JobReasonBackoffLimitExceeded:
		if p := o.lastRejected(); p != nil {
			return o.rejectedFailure(p)
		}
	case batchv1.JobReasonDeadlineExceeded:
		f.Reason = v1alpha1.ReasonDeadlineExceeded
	case batchv1.JobReasonPodFailurePolicy:
		f.Reason = v1alpha1.ReasonPodLost
	}
	return f
}
