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

// recent is the last status that was written of each job that is not over. The
// caches hear of it a moment later; until then a job looks as it did before, and
// everything would be done and written once more. It is lost with the process,
// which costs some calls and nothing else.
type recent struct {
	mu     sync.Mutex
	writes map[types.NamespacedName]write
	signs  map[types.NamespacedName]sign

	absences map[types.NamespacedName]sign
	ended    endedPods
	wrong    map[troubled]trouble
	lost     map[types.NamespacedName]lost
	ready    map[types.NamespacedName]types.UID // MPIJobs for whose pods all has been made
	services map[types.NamespacedName]kept
}

// keeps is what is known of the Service of a job's attempt, and how long it is to the next
// look at it. One that is due is next looked at after pace; so is one that is not known: it
// has been made with the attempt.
func (r *recent) keeps(job *v1alpha1.MPIJob, attempt int32, pace time.Duration, now time.Time) (kept, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	k, known := r.services[key]
	if !known || k.uid != job.UID || k.attempt != attempt {
		known, k = false, kept{uid: job.UID, attempt: attempt}
	}
	if left := min(k.next.Sub(now), pace); known && left > 0 { // the clock may have been set back
		return k, left
	}
	k.next = now.Add(pace)
	if r.services == nil {
		r.services = map[types.NamespacedName]kept{}
	}
	r.services[key] = k
	if !known {
		return k, pace
	}
	return k, 0
}

// keep notes what the job document of an attempt says of its Service.
func (r *recent) keep(job *v1alpha1.MPIJob, k kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services[client.ObjectKeyFromObject(job)] = k
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		delete(r.lost, client.ObjectKeyFromObject(job))
		return
	}
	if r.lost == nil {
		r.lost = map[types.NamespacedName]lost{}
	}
	r.lost[client.ObjectKeyFromObject(job)] = lost{job.UID, name}
}

// gone reports whether a job's Job is known to be not there any more.
func (r *recent) gone(job *v1alpha1.MPIJob, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[client.ObjectKeyFromObject(job)] == lost{job.UID, name}
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
	e := r.ended.of[key]
	if len(e.pods) >= endedMax {
		return
	}
	e.words += essence(p, wordsMax-e.words)
	e.pods = append(e.pods, p)
	r.ended.put(key, e)
	r.ended.shed(remainsMax)
}

// remembered are the pods of a job that have ended and are not there any more.
func (r *recent) remembered(job *v1alpha1.MPIJob, there []corev1.Pod) []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if job.Spec.PodManagement != v1alpha1.PodsExternal || verdict.Finished(&job.Status) {
		r.ended.forget(key)
		return nil
	}
	known := make(map[types.UID]bool, len(there))
	for i := range there {
		known[there[i].UID] = true
	}
	var gone []*corev1.Pod
	for _, p := range r.ended.of[key].pods {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	return first(&r.signs, client.ObjectKeyFromObject(job), failing, sign{job.UID, attempt, 0, now})
}

// absent is since when the pod of a number has been seen to be missing; zero, when it is
// negative and none is.
func (r *recent) absent(job *v1alpha1.MPIJob, attempt, number int32, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return first(&r.absences, client.ObjectKeyFromObject(job), number >= 0, sign{job.UID, attempt, number, now})
}

// first is when something, which is or is not there now, was first seen.
func first(all *map[types.NamespacedName]sign, key types.NamespacedName, is bool, now sign) time.Time {
	if !is {
		delete(*all, key)
		return time.Time{}
	}
	if s, ok := (*all)[key]; ok && s.uid == now.uid && s.attempt == now.attempt && s.pod == now.pod {
		return s.at
	}
	if *all == nil {
		*all = map[types.NamespacedName]sign{}
	}
	(*all)[key] = now
	return now.at
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
	w, ok := r.writes[client.ObjectKeyFromObject(job)]
	return ok && w.uid == job.UID && w.from == job.ResourceVersion
}

// wait is how long the next unimportant write of a job has to wait.
func (r *recent) wait(job *v1alpha1.MPIJob, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.writes[client.ObjectKeyFromObject(job)]
	if !ok || w.uid != job.UID {
		return 0
	}
	return min(w.at.Add(pace).Sub(now), pace) // the clock may have been set back
}

// note remembers that job was written over.
func (r *recent) note(job *v1alpha1.MPIJob, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes == nil {
		r.writes = map[types.NamespacedName]write{}
	}
	r.writes[client.ObjectKeyFromObject(job)] = write{job.UID, job.ResourceVersion, at}
}

// forget drops what is known of a job.
func (r *recent) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.writes, name)
	delete(r.signs, name)
	delete(r.absences, name)
	r.ended.forget(name)
	for action := statusWrite; action <= verdict.Delete; action++ {
		delete(r.wrong, troubled{name, action})
	}
	delete(r.lost, name)
	delete(r.ready, name)
	delete(r.services, name)
}

// prepare notes that all has been made that pods of other controllers need.
func (r *recent) prepare(job *v1alpha1.MPIJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready == nil {
		r.ready = map[types.NamespacedName]types.UID{}
	}
	r.ready[client.ObjectKeyFromObject(job)] = job.UID
}

// prepared reports whether that is known, to this process.
func (r *recent) prepared(job *v1alpha1.MPIJob) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready[client.ObjectKeyFromObject(job)] == job.UID
}
