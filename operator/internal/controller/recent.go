package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
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
}

// sign is when an attempt's failure was first seen, by this process's clock.
type sign struct {
	uid     types.UID
	attempt int32
	at      time.Time
}

// noticed is when the first sign of a failure of the job's attempt was seen;
// zero, when there is none.
func (r *recent) noticed(job *v1alpha1.MPIJob, attempt int32, failing bool, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if !failing {
		delete(r.signs, key)
		return time.Time{}
	}
	if s, ok := r.signs[key]; ok && s.uid == job.UID && s.attempt == attempt {
		return s.at
	}
	if r.signs == nil {
		r.signs = map[types.NamespacedName]sign{}
	}
	r.signs[key] = sign{job.UID, attempt, now}
	return now
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
}
