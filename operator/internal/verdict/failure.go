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

// settle is how long after the first sign of a failure its cause is waited for:
// containers that end because of another's end may be heard of first.
const settle = 3 * time.Second

// failure is what ended the attempt: nil when nothing has. It is settled when
// nothing that may still arrive would change it.
func (o *Observation) failure() (f *v1alpha1.Failure, settled bool) {
	since := o.firstSign()
	if p := cmp.Or(o.takenAway(since), o.disrupted(since)); p != nil {
		return o.lost(p), true // it will not be there when all have ended
	}
	gone := o.gone()
	if f, left := o.vanished(); f != nil && left <= 0 {
		gone = f
	}
	if p := o.rejectedTooOften(); p != nil && gone == nil {
		gone = o.turnedAway(p)
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
	if f == nil || o.jobEnded(batch) && f.Reason == string(podlife.Terminated) { // the Job ended them, and says why
		f = o.ofBatch(batch)
	}
	number := AttemptOf(o.Job)
	f.Attempt = &number
	return f, since.IsZero() || o.waited() >= settle || o.allTerminal()
}

// Sign reports whether something has failed, of which the cause is to be found.
func Sign(o *Observation) bool {
	o.recall()
	o.arrange()
	return !o.firstSign().IsZero()
}

// waited is the time since the first sign of a failure was seen.
func (o *Observation) waited() time.Duration {
	if o.Noticed.IsZero() {
		return 0
	}
	return o.Now.Sub(o.Noticed)
}

// firstSign is when the first container or pod failed, as the cluster tells; zero: none
// has. It was not after it was noticed, whatever the clock of a node says.
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

// counting are the pods that count: of several pods of a number the first that a node has taken,
// and that was not taken away before it had begun. The others were made because it failed, or
// because two pods of another controller have got one number at once, of which the second one
// gets no certificate.
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

// known is a time that something happened, which has been noticed since. Clocks that
// differ by little are left alone: times of one of them are compared.
func (o *Observation) known(at time.Time) time.Time {
	if !o.Noticed.IsZero() && at.Sub(o.Noticed) > skewMax {
		return o.Noticed
	}
	return at
}

// endOf is when a container ended. Of one whose end it has not seen, the kubelet
// tells no time (ContainerStatusUnknown).
func (o *Observation) endOf(t *corev1.ContainerStateTerminated, p *corev1.Pod) time.Time {
	if !t.FinishedAt.IsZero() {
		return t.FinishedAt.Time
	}
	return o.lastChange(p)
}

// lastChange is the last time that a pod's status tells of.
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

// daemonFailed is the bad end of a pod's sidecar, unless it has none.
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

// blame asks what launchers and sidecars have left, and adds what only the
// cluster knows: why a process was killed.
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

// lastWords is how long the end of a job whose ranks have all ended with 0 waits
// for what its sidecars say, up to patience after that end: the cache may hear of the Job
// before it hears of the last pods, and a sidecar ends after its ranks.
func (o *Observation) lastWords(patience time.Duration) time.Duration {
	ended := o.lastEnd()
	if c := o.batchCondition(batchv1.JobComplete); c != nil {
		ended = c.LastTransitionTime.Time
	}
	if o.allTerminal() {
		return 0
	}
	// Clocks differ: one that is behind does not hold the job up for ever.
	if waited := o.Now.Sub(ended); waited >= 0 && waited < patience {
		return patience - waited
	}
	return 0
}

// lastEnd is when the last application ended.
func (o *Observation) lastEnd() time.Time {
	var last time.Time
	for _, p := range o.counting() {
		if c := o.application(p); c != nil && c.State.Terminated != nil && c.State.Terminated.FinishedAt.After(last) {
			last = c.State.Terminated.FinishedAt.Time
		}
	}
	return last
}

// denied is the failure that sidecars have agreed on although every rank has
// ended with 0: one that ended without Close, or aborted, has failed the job
// whatever it exits with, here as with outrigger run. How a sidecar itself has
// ended counts for nothing when its ranks were done.
func (o *Observation) denied() *v1alpha1.Failure {
	for _, p := range o.Pods {
		if m := o.sidecarWords(p); m == nil || len(m.Failures) == 0 {
			continue
		}
		if f := o.blame(); f != nil { // nil: it is of a pod that does not count
			number := AttemptOf(o.Job)
			f.Attempt = &number
			return f
		}
	}
	return nil
}

// sidecarWords are the last words of a pod's sidecar, or what one that still runs has said
// when it was asked at the end of the job; nil: there are none.
func (o *Observation) sidecarWords(p *corev1.Pod) *podlife.Message {
	if t := ended(sidecar(p)); t != nil {
		return message(t.Message, podlife.KindSidecar)
	}
	if f := o.Said[p.UID]; f != nil {
		return &podlife.Message{Kind: podlife.KindSidecar, Failures: []podlife.Failure{*f}}
	}
	return nil
}

// report is what a pod's containers have left behind.
func (o *Observation) report(p *corev1.Pod, index int32) podlife.Report {
	first, count := desired.Ranks(&o.Job.Spec, index)
	r := podlife.Report{Pod: int(index), FirstRank: int(first), Ranks: int(count)}
	if t := ended(o.application(p)); t != nil {
		r.Application = ending(t)
		if r.Application.Text = ""; slices.Contains(unstarted, t.Reason) { // else the code says it
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

// unstarted are the reasons of containers of which the runtime could not start the
// program; the message is the runtime's then.
var unstarted = []string{"StartError", "ContainerCannotRun"}

// output has the first and the last lines of a pod's ranks, as its launcher has left them.
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

// message reads a container's last words; what is no message of the right kind
// is somebody else's, and nothing.
func message(text string, kind podlife.Kind) *podlife.Message {
	m, err := podlife.Parse([]byte(text))
	if err != nil || m.Kind != kind {
		return nil
	}
	return m
}

// locate says where the failure was, and why if the cluster did it.
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

// logsOf is the command that shows a container's output.
func logsOf(p *corev1.Pod, container string) string {
	return fmt.Sprintf("kubectl logs %s -c %s", p.Name, container)
}

// limitOf says a container's limit of memory; empty: it is not known.
func limitOf(containers []corev1.Container, name string) string {
	for i := range containers {
		if limit, ok := containers[i].Resources.Limits[corev1.ResourceMemory]; ok && containers[i].Name == name {
			return " of " + limit.String()
		}
	}
	return ""
}

// overPodDeadline reports whether the kubelet has ended a pod for the deadline of its own
// spec, by the kubelet's reason.
func overPodDeadline(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
}

// storage are the kubelet's words for a pod that it evicts for what the pod itself has used.
// A pod that it evicts for the node has others, and is drained.
var storage = []string{"exceeds the limit", "exceeds the total limit of containers", "exceeded its local ephemeral storage limit"}

// overStorage reports whether the kubelet has evicted a pod for the limits of its own volumes
// and containers. The same would happen again on another node.
func overStorage(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" &&
		slices.ContainsFunc(storage, func(words string) bool { return strings.Contains(p.Status.Message, words) })
}

// nodeless reports whether a pod was taken away since its node is not there, to which the
// template binds the job's pods: the next ones would be taken away as well.
func (o *Observation) nodeless(p *corev1.Pod) bool {
	return !external(o.Job) && p.Spec.NodeName != "" && p.Spec.NodeName == o.Job.Spec.Template.Spec.NodeName &&
		strings.HasPrefix(disruption(p), "DeletionByPodGC: ")
}

// drained makes a failure that of an attempt whose pods are taken away. Pods of another
// controller are not made again by us.
func (o *Observation) drained(f *v1alpha1.Failure, text string) {
	f.Reason, f.Message, f.ExitCode = v1alpha1.ReasonDrained, text, nil
	if external(o.Job) {
		f.Reason = v1alpha1.ReasonPodLost
	}
}

// isDrained reports whether a failure is none of the ranks': their pods were taken away.
func isDrained(f *v1alpha1.Failure) bool { return f != nil && f.Reason == v1alpha1.ReasonDrained }

const textDeleted = "the pod was deleted while its ranks were at work"

// forgotten reports a container of whose end the node knows nothing: it has
// only found that it is not there any more.
func forgotten(c *corev1.ContainerStatus) bool {
	t := ended(c)
	return t != nil && (t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown")
}

func killedForMemory(c *corev1.ContainerStatus) bool {
	t := ended(c)
	return t != nil && t.Reason == "OOMKilled"
}

// disruption is why Kubernetes took the pod away, if it did.
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

// deletedBefore reports whether the pod's deletion was asked for before at.
func deletedBefore(p *corev1.Pod, at time.Time) bool {
	return p.DeletionTimestamp != nil && !asked(p).After(at.Add(time.Second)) // whole seconds, rounded down
}

// asked is when a pod's deletion was asked for. The object's time of deletion
// is the end of its grace.
func asked(p *corev1.Pod) time.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

// takenAt is when a pod began to be taken away: its deletion was asked for, or Kubernetes
// said why.
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

// takenAway is a pod whose deletion was asked for while its ranks were at work,
// before the first sign of a failure.
func (o *Observation) takenAway(sign time.Time) *corev1.Pod {
	if o.Batch != nil && Over(o.Batch) {
		return nil // its controller deletes what is left
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

// disrupted is a pod that Kubernetes takes away, and took away before the first sign of a
// failure: ranks of other pods may have ended first, with any code, because the ranks of
// this one have told them.
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

// unread reports whether the pod of a failure is about to end, with last words that may
// change the verdict, and output that its deletion would take away: of its application and
// our sidecar one has ended, and the other has not. Where neither has, or the pod's node is
// not Ready, the verdict does not wait.
func (o *Observation) unread(f *v1alpha1.Failure) bool {
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

// textRejected is how the kubelet begins the message of a pod that it does not admit.
const textRejected = "Pod was rejected: "

// ofPods is a failure that no program has told of.
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

// failedInit is the first init container that ended badly; the sidecar speaks
// for itself.
func failedInit(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && c.Name != names.ContainerSidecar {
			return c
		}
	}
	return nil
}

// gone is the failure of a Job that was there and is not any more.
func (o *Observation) gone() *v1alpha1.Failure {
	if o.Batch == nil && o.Job.Status.JobName == desired.AttemptName(o.Job.Name, AttemptOf(o.Job)) {
		return &v1alpha1.Failure{Reason: v1alpha1.ReasonPodLost, Message: fmt.Sprintf("Job %s was deleted", o.Job.Status.JobName)}
	}
	return nil
}

// vanishedPatience is how long the pod of a number may be missing that was there:
// its end may still be heard of.
const vanishedPatience = 20 * time.Second

// vanished is the failure of a job of another controller's pods, all of which
// were there, of which one is not any more without a word of how it ended: nobody
// can take its place. It counts when no time is left.
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
		Rank: &rank, Reason: v1alpha1.ReasonPodLost, Message: fmt.Sprintf("pod number %d is gone, and nobody has seen how it ended", i),
	}, vanishedPatience - o.missing()
}

// jobEnded reports whether the Job itself has ended pods that were at work. One
// that gave up because pods had failed did not: they failed before it.
func (o *Observation) jobEnded(c *batchv1.JobCondition) bool {
	return c != nil && (c.Reason != batchv1.JobReasonBackoffLimitExceeded || o.lastRejected() != nil)
}

// ofBatch is what the batch Job says of its end, when its pods say nothing.
func (o *Observation) ofBatch(c *batchv1.JobCondition) *v1alpha1.Failure {
	f := &v1alpha1.Failure{Reason: v1alpha1.ReasonUnknown}
	if c == nil {
		return f
	}
	f.Message = fmt.Sprintf("Job %s: %s: %s", o.Batch.Name, c.Reason, c.Message)
	switch c.Reason {
	case batchv1.JobReasonBackoffLimitExceeded:
		if p := o.lastRejected(); p != nil {
			return o.turnedAway(p)
		}
	case batchv1.JobReasonDeadlineExceeded:
		f.Reason = v1alpha1.ReasonDeadlineExceeded
	case batchv1.JobReasonPodFailurePolicy:
		f.Reason = v1alpha1.ReasonPodLost
	}
	return f
}
