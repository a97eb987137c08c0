package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// pace is the minimum time between two writes of a job's status that differ only in
// counts and messages: a job of 512 pods must not cause 512 writes.
const pace = time.Second

// recent holds what this process knows about jobs and cannot read from the caches:
// either the caches do not have a write yet, or no object holds the information. It is
// lost when the process ends, which costs only some additional calls.
type recent struct {
	mu     sync.Mutex
	jobs   map[types.NamespacedName]record // jobs with a record that is not empty
	weight int                             // sum of the weights of all remembered pods, kept so that it is not computed for each pod
}

// record is what is known of one job. The zero record is empty.
type record struct {
	written  *write
	failing  sign // first sign of a failure of the attempt
	missing  sign // first sign that a pod is missing
	ended    remains
	troubles map[verdict.Action]trouble
	lost     lost
	prepared types.UID // UID of the MPIJob for whose pods all objects have been made
	service  *kept
}

func (k *record) empty() bool {
	return k.written == nil && k.failing.at.IsZero() && k.missing.at.IsZero() && k.ended.weight() == 0 && len(k.troubles) == 0 &&
		k.lost == lost{} && k.prepared == "" && k.service == nil
}

// change lets f change the record of a job. An empty record is deleted: pods may name
// jobs that never existed. Preconditions: mu is held.
func (r *recent) change(key types.NamespacedName, f func(*record)) {
	k := r.jobs[key]
	before := k.ended.weight()
	f(&k)
	r.weight += k.ended.weight() - before
	if k.empty() {
		delete(r.jobs, key)
		return
	}
	if r.jobs == nil {
		r.jobs = map[types.NamespacedName]record{}
	}
	r.jobs[key] = k
}

// of returns the record of a job. Preconditions: mu is held.
func (r *recent) of(job *v1alpha1.MPIJob) record { return r.jobs[client.ObjectKeyFromObject(job)] }

// set is like change, but takes mu.
func (r *recent) set(job *v1alpha1.MPIJob, f func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(client.ObjectKeyFromObject(job), f)
}

// keeps returns what is known of the Service of a job's attempt, and the time to its
// next check; 0: it is due. For a Service that is due, the next check is set to pace
// from now. A Service without a record was made with the attempt, and is first checked
// after pace.
func (r *recent) keeps(job *v1alpha1.MPIJob, attempt int32, pace time.Duration, now time.Time) (kept, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, left := kept{uid: job.UID, attempt: attempt}, pace
	if s := r.of(job).service; s != nil && s.uid == job.UID && s.attempt == attempt {
		k, left = *s, 0
		if left := min(k.next.Sub(now), pace); left > 0 { // the clock may have been set back
			return k, left
		}
	}
	k.next = now.Add(pace)
	r.change(client.ObjectKeyFromObject(job), func(x *record) { x.service = new(k) })
	return k, left
}

// setService stores the state of an attempt's Service.
func (r *recent) setService(job *v1alpha1.MPIJob, k kept) {
	r.set(job, func(x *record) { x.service = &k })
}

// lost names a Job that the API server has reported as missing. A Job is not made
// again, so this result stays valid. Without it, every reconciliation would read the
// Job from the API server, and every user with the right to label pods can cause
// reconciliations.
type lost struct {
	uid  types.UID // UID of the MPIJob that owned the Job
	name string
}

// missed notes that a job's Job is missing; name "" clears the note, because the Job is
// made now.
func (r *recent) missed(job *v1alpha1.MPIJob, name string) {
	r.set(job, func(x *record) {
		if x.lost = (lost{}); name != "" {
			x.lost = lost{job.UID, name}
		}
	})
}

// gone reports whether a job's Job is known to be missing.
func (r *recent) gone(job *v1alpha1.MPIJob, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(job).lost == lost{job.UID, name}
}

// endedMax bounds the ended pods of one job that are remembered: a pod of each number
// may have ended more than once between two reconciliations.
const endedMax = 2 * 4096

// rememberPod keeps an ended pod of another controller that is being deleted.
// Controllers for permanent workloads, such as the StatefulSet controller, replace an
// ended pod at once, before the last pods of the job have ended. Without this record,
// the exit codes of all pods would never be available together.
func (r *recent) rememberPod(p *corev1.Pod) {
	name := p.Labels[names.LabelJob]
	if p.Labels[names.LabelInject] != "true" || name == "" || p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return
	}
	p = p.DeepCopy()
	if g := p.DeletionGracePeriodSeconds; g == nil || *g == 0 {
		// The pod had ended before its deletion was requested, so the deletion did not
		// end it.
		p.DeletionTimestamp = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: p.Namespace, Name: name}
	r.change(key, func(x *record) {
		if e := &x.ended; len(e.pods) < endedMax {
			e.words += essence(p, wordsMax-e.words)
			e.pods = append(e.pods, p)
		}
	})
	r.shed(remainsMax)
}

// remembered returns the ended pods of a job that no longer exist.
func (r *recent) remembered(job *v1alpha1.MPIJob, there []corev1.Pod) []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if job.Spec.PodManagement != v1alpha1.PodsExternal || verdict.Finished(&job.Status) {
		r.change(key, forgetPods)
		return nil
	}
	known := make(map[types.UID]bool, len(there))
	for i := range there {
		known[there[i].UID] = true
	}
	var gone []*corev1.Pod
	for _, p := range r.jobs[key].ended.pods {
		if !known[p.UID] && !p.CreationTimestamp.Before(&job.CreationTimestamp) {
			known[p.UID] = true
			gone = append(gone, p)
		}
	}
	return gone
}

// sign is when a condition of an attempt was first seen, by this process's clock.
type sign struct {
	uid     types.UID
	attempt int32
	pod     int32 // number of the pod, if the condition is about one pod
	at      time.Time
}

// noticed returns when the first sign of a failure of the job's attempt was seen; zero
// if there is none.
func (r *recent) noticed(job *v1alpha1.MPIJob, attempt int32, failing bool, now time.Time) time.Time {
	return r.first(job, func(x *record) *sign { return &x.failing }, failing, sign{job.UID, attempt, 0, now})
}

// absent returns since when the pod with the given number has been missing; zero if
// number is negative, which means that no pod is missing.
func (r *recent) absent(job *v1alpha1.MPIJob, attempt, number int32, now time.Time) time.Time {
	return r.first(job, func(x *record) *sign { return &x.missing }, number >= 0, sign{job.UID, attempt, number, now})
}

// first returns when a condition was first seen. The argument is tells whether the condition
// holds now.
func (r *recent) first(job *v1alpha1.MPIJob, of func(*record) *sign, is bool, now sign) (at time.Time) {
	r.set(job, func(x *record) {
		switch s := of(x); {
		case !is:
			*s = sign{}
		case s.at.IsZero() || s.uid != now.uid || s.attempt != now.attempt || s.pod != now.pod:
			*s = now
		}
		at = of(x).at
	})
	return at
}

type write struct {
	uid  types.UID
	from string // resource version that was replaced
	at   time.Time
}

// outdated reports whether job is the version that the last write of its status
// replaced.
func (r *recent) outdated(job *v1alpha1.MPIJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(job).written
	return w != nil && w.uid == job.UID && w.from == job.ResourceVersion
}

// wait returns how long the next unimportant write of a job's status has to wait.
func (r *recent) wait(job *v1alpha1.MPIJob, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(job).written
	if w == nil || w.uid != job.UID {
		return 0
	}
	return min(w.at.Add(pace).Sub(now), pace) // the clock may have been set back
}

// note records that the status of this version of job was replaced.
func (r *recent) note(job *v1alpha1.MPIJob, at time.Time) {
	r.set(job, func(x *record) { x.written = &write{job.UID, job.ResourceVersion, at} })
}

// forget deletes the record of a job.
func (r *recent) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(name, func(x *record) { *x = record{} })
}

// prepare notes that all objects have been made that pods of other controllers need.
func (r *recent) prepare(job *v1alpha1.MPIJob) {
	r.set(job, func(x *record) { x.prepared = job.UID })
}

// prepared reports whether this process has made those objects.
func (r *recent) prepared(job *v1alpha1.MPIJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(job).prepared == job.UID
}
