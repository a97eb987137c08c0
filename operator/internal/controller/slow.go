package controller

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// A call to the API server may take as long as a webhook does not answer, up to 30 s,
// and the webhook may apply to a single namespace. A reconciliation with such a call
// holds a slot of a limiter, so that the other workers stay free. A slow call that gets
// no slot is cancelled.
const (
	// A call is slow after this time. A webhook that does not answer has a timeout of
	// 10 s by default. An overloaded API server takes some seconds, and repeating its
	// calls would add load.
	slowAfter = 8 * time.Second
	// After a slow call, reconciliations of the namespace need a slot from their start
	// for this time. It covers the next try of a failed action (troubleMax).
	slowFor = troubleMax + time.Minute
	// Replaces slowFor if, since then, every kind of call that was slow has been
	// answered in time. A webhook that answers only sometimes can hold all workers for
	// slowAfter once in this time.
	slowSoon  = time.Minute
	slowAgain = time.Second // minimum time to the next reconciliation of a job that got no slot
)

// slow holds the namespaces with slow calls and the slots of their reconciliations.
type slow struct {
	mu      sync.Mutex // guards all fields of slow and of its hangs and turns
	limiter limiter
	hangs   map[string]*hang // state of each namespace with slow calls
}

// hang is the state of a namespace with slow calls.
type hang struct {
	last  time.Time       // time of the last slow call
	calls map[string]bool // kinds of calls that were slow and have not been answered in time since
}

// over reports whether the namespace is no longer treated as slow.
func (h *hang) over(now time.Time) bool {
	if len(h.calls) == 0 {
		return !now.Before(h.last.Add(slowSoon))
	}
	return !now.Before(h.last.Add(slowFor))
}

// hang returns the entry of a namespace, and makes it if needed. mu is held.
func (s *slow) hang(namespace string) *hang {
	h := s.hangs[namespace]
	if h == nil {
		h = &hang{calls: map[string]bool{}}
		if s.hangs == nil {
			s.hangs = map[string]*hang{}
		}
		s.hangs[namespace] = h
	}
	return h
}

// slowSlots returns how many reconciliations may wait for slow calls, given the number
// of workers.
func slowSlots(workers int) int { return max(1, workers/2) }

// turn is one reconciliation of a job.
type turn struct {
	of        *slow
	namespace string
	// Fields that of.mu guards.
	hasSlot bool // the reconciliation holds a slot
	slow    bool // the reconciliation had a slow call
	over    bool
}

// begin starts a reconciliation of a job of a namespace. ok is false if it has to wait
// for a slot. If ok is true, the caller must call end.
func (s *slow) begin(namespace string) (t *turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = &turn{of: s, namespace: namespace}
	if h := s.hangs[namespace]; h != nil && !h.over(time.Now()) {
		return t, t.acquireSlot()
	}
	return t, true
}

// acquireSlot acquires a slot, if the namespace may hold another one. of.mu is held.
func (t *turn) acquireSlot() bool {
	t.hasSlot = t.hasSlot || t.of.limiter.acquire(t.namespace)
	return t.hasSlot
}

func (t *turn) release() {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	t.over = true
	if t.slow {
		s.hang(t.namespace).last = time.Now()
	}
	if t.hasSlot {
		s.limiter.release(t.namespace)
	}
}

// late notes that a call of this reconciliation is slow. what is the kind of the call.
// It reports whether the call may continue, and whether this is the first slow call of
// the namespace.
func (t *turn) late(what string) (may, news bool) {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over {
		return true, false // the call has ended in the meantime
	}
	t.slow = true
	now := time.Now()
	maps.DeleteFunc(s.hangs, func(_ string, h *hang) bool { return h.over(now) })
	_, known := s.hangs[t.namespace]
	h := s.hang(t.namespace)
	h.last, h.calls[what] = now, true
	return t.acquireSlot(), !known
}

// answered notes that a call of this kind was answered in time.
func (t *turn) answered(what string) {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hangs[t.namespace]; h != nil {
		delete(h.calls, what)
	}
}

// errGivenUp is the error of a slow call that got no slot.
var errGivenUp = errors.New("the API server does not answer, and neither to other calls for jobs of this namespace")

// turnKey is the key of the turn in a context.
type turnKey struct{}

// write makes one call that changes an object, which webhooks may delay. what is the
// kind of the call, since a webhook mostly applies to one kind of object.
func (r *Reconciler) write(ctx context.Context, what string, call func(context.Context) error) error {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return call(ctx)
	}
	patient, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(slowAfter, func() {
		may, news := t.late(what)
		if news {
			log.FromContext(ctx).Info("calls for jobs of a namespace last long: a webhook may not answer; few of its jobs are looked at at once", "namespace", t.namespace)
		}
		if !may {
			cancel(errGivenUp)
		}
	})
	err := call(patient)
	if inTime := timer.Stop(); inTime && passed(err) {
		t.answered(what)
	}
	if err != nil && errors.Is(context.Cause(patient), errGivenUp) {
		return errGivenUp
	}
	return err
}

// passed reports whether a call has passed the webhooks. The API server checks whether
// an object exists already after them.
func passed(err error) bool { return err == nil || apierrors.IsAlreadyExists(err) }

// putOff returns how long a job without a slot waits. It is random, so that not all
// such jobs try again at once.
func putOff() time.Duration { return slowAgain + rand.N(slowAgain) }
