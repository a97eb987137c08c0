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

// pace is the least time between two writes of a job's status that differ only
// in counts and messages: a job of 512 pods does not write 512 times.
const pace = time.Second

// recent is what this process knows of jobs and does not find in the caches: because they
// learn of a write a moment later, and until then a job looks as it did before, or because
// it is in no object. It is lost with the process, which costs some calls and nothing else.
type recent struct {
	mu     sync.Mutex
	jobs   map[types.NamespacedName]record // those of which something is known
	weight int                             // of what is remembered of the pods of all: it is not counted anew at each pod
}

// record is what is known of one job. The zero record is nothing.
type record struct {
	written  *write
	failing  sign // of a failure of the attempt
	missing  sign // of a pod that is not there
	ended    remains
	troubles map[verdict.Action]trouble
	lost     lost
	prepared types.UID // of the MPIJob for whose pods all has been made
	service  *kept
}

func (k *record) empty() bool {
	return k.written == nil && k.failing.at.IsZero() && k.missing.at.IsZero() && k.ended.weight() == 0 && len(k.troubles) == 0 &&
		k.lost == lost{} && k.prepared == "" && k.service == nil
}

// change lets f change the record of a job. It is kept only while it says something: pods
// may name jobs that there never were. Preconditions: mu is held.
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

// of is the record of a job. Preconditions: mu is held.
func (r *recent) of(job *v1alpha1.MPIJob) record { return r.jobs[client.ObjectKeyFromObject(job)] }

// set is change of a job, with mu.
func (r *recent) set(job *v1alpha1.MPIJob, f func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(client.ObjectKeyFromObject(job), f)
}

// keeps is what is known of the Service of a job's attempt, and how long it is to the next
// look at it. One that is due is next looked at after pace; so is one that is not known: it
// has been made with the attempt.
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

// keep notes what the job document of an attempt says of its Service.
func (r *recent) keep(job *v1alpha1.MPIJob, k kept) {
	r.set(job, func(x *record) { x.service = &k })
}

// lost is a Job of which the API server has said that it is not there any more: nobody
// makes it again, and whoever may label pods has the MPIJob looked at as often as they
// like.
type lost struct {
	uid  types.UID // of the MPIJob
	name string
}

// missed notes that a job's Job is not there any more; "": that it is made now.
func (r *recent) missed(job *v1alpha1.MPIJob, name string) {
	r.set(job, func(x *record) {
		if x.lost = (lost{}); name != "" {
			x.lost = lost{job.UID, name}
		}
	})
}

// gone reports whether a job's Job is known to be not there any more.
func (r *recent) gone(job *v1alpha1.MPIJob, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(job).lost == lost{job.UID, name}
}

// endedMax bounds the pods of one job that are remembered: each number may have
// ended more than once before anybody looked.
const endedMax = 2 * 4096

// remember keeps a pod of another controller that has ended and is being taken
// away. Controllers that are made for what never ends, as StatefulSet's, replace
// such pods at once, before the last ones of the job have ended: how they ended
// would be known of no two of them at the same time.
func (r *recent) remember(p *corev1.Pod) {
	name := p.Labels[names.LabelJob]
	if p.Labels[names.LabelInject] != "true" || name == "" || p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return
	}
	p = p.DeepCopy()
	if g := p.DeletionGracePeriodSeconds; g == nil || *g == 0 {
		// It had ended when its deletion was asked for: that is not why.
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

// remembered are the pods of a job that have ended and are not there any more.
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

// sign is when something was first seen of an attempt, by this process's clock.
type sign struct {
	uid     types.UID
	attempt int32
	pod     int32 // number, where it is of one
	at      time.Time
}

// noticed is when the first sign of a failure of the job's attempt was seen;
// zero, when there is none.
func (r *recent) noticed(job *v1alpha1.MPIJob, attempt int32, failing bool, now time.Time) time.Time {
	return r.first(job, func(x *record) *sign { return &x.failing }, failing, sign{job.UID, attempt, 0, now})
}

// absent is since when the pod of a number has been seen to be missing; zero, when it is
// negative and none is.
func (r *recent) absent(job *v1alpha1.MPIJob, attempt, number int32, now time.Time) time.Time {
	return r.first(job, func(x *record) *sign { return &x.missing }, number >= 0, sign{job.UID, attempt, number, now})
}

// first is when something, which is or is not there now, was first seen.
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
	from string // the version that was written over
	at   time.Time
}

// outdated reports whether job is the version that was written over.
func (r *recent) outdated(job *v1alpha1.MPIJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(job).written
	return w != nil && w.uid == job.UID && w.from == job.ResourceVersion
}

// wait is how long the next unimportant write of a job has to wait.
func (r *recent) wait(job *v1alpha1.MPIJob, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(job).written
	if w == nil || w.uid != job.UID {
		return 0
	}
	return min(w.at.Add(pace).Sub(now), pace) // the clock may have been set back
}

// note remembers that job was written over.
func (r *recent) note(job *v1alpha1.MPIJob, at time.Time) {
	r.set(job, func(x *record) { x.written = &write{job.UID, job.ResourceVersion, at} })
}

// forget drops what is known of a job.
func (r *recent) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(name, func(x *record) { *x = record{} })
}

// prepare notes that all has been made that pods of other controllers need.
func (r *recent) prepare(job *v1alpha1.MPIJob) {
	r.set(job, func(x *record) { x.prepared = job.UID })
}

// prepared reports whether that is known, to this process.
func (r *recent) prepared(job *v1alpha1.MPIJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(job).prepared == job.UID
}
