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

// A call to the API server may last as long as a webhook does not answer, 30 s, and the
// webhook may be one of a single namespace. Looks at jobs whose calls last so long take
// places: the workers are for the others. A call that lasts long and gets no place is
// given up.
const (
	// A call that has lasted so long is slow. A webhook that does not answer has 10 s by
	// default; an API server that has too much to do takes some seconds, and is not to be
	// asked again because of that.
	slowAfter = 8 * time.Second
	// Looks at a namespace's jobs take a place from the start, since its last slow call,
	// for so long: the next try of what did not succeed is within that time (troubleMax).
	slowFor = troubleMax + time.Minute
	// The same, where calls of each kind that were slow have been answered since. A
	// webhook that answers now and then takes all workers for slowAfter once in this time.
	slowSoon  = time.Minute
	slowAgain = time.Second // at least, to the next look at a job that found no place
)

// slow is which namespaces' calls last long, and which looks wait for them.
type slow struct {
	mu     sync.Mutex // guards all
	places places
	hangs  map[string]*hang // by namespace
}

// hang is what is known of a namespace of which a call was slow.
type hang struct {
	last  time.Time       // of them
	calls map[string]bool // what was slow, and has not been answered since
}

// over reports whether its namespace is one like others again.
func (h *hang) over(now time.Time) bool {
	if len(h.calls) == 0 {
		return !now.Before(h.last.Add(slowSoon))
	}
	return !now.Before(h.last.Add(slowFor))
}

// hang is that of a namespace, which has one from now on. mu is held.
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

// slowPlaces is how many looks of so many workers may wait for slow calls.
func slowPlaces(workers int) int { return max(1, workers/2) }

// turn is a look at a job, as long as it lasts.
type turn struct {
	of        *slow
	namespace string
	// guarded by of.mu
	placed bool // it has a place
	slow   bool // a call of it lasted long
	over   bool
}

// begin begins a look at a job of a namespace; ok is false where one has to wait. end
// has to follow where not.
func (s *slow) begin(namespace string) (t *turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = &turn{of: s, namespace: namespace}
	if h := s.hangs[namespace]; h != nil && !h.over(time.Now()) {
		return t, t.place()
	}
	return t, true
}

// place takes a place, if the namespace may have one more. of.mu is held.
func (t *turn) place() bool {
	t.placed = t.placed || t.of.places.take(t.namespace)
	return t.placed
}

func (t *turn) end() {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	t.over = true
	if t.slow {
		s.hang(t.namespace).last = time.Now()
	}
	if t.placed {
		s.places.give(t.namespace)
	}
}

// late notes that a call of the look lasts long, and what it does. It reports whether the
// call may go on, and whether the namespace was not known for such calls.
func (t *turn) late(what string) (may, news bool) {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over {
		return true, false // the call has ended meanwhile
	}
	t.slow = true
	now := time.Now()
	maps.DeleteFunc(s.hangs, func(_ string, h *hang) bool { return h.over(now) })
	_, known := s.hangs[t.namespace]
	h := s.hang(t.namespace)
	h.last, h.calls[what] = now, true
	return t.place(), !known
}

// answered notes that what a call does is done in time.
func (t *turn) answered(what string) {
	s := t.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hangs[t.namespace]; h != nil {
		delete(h.calls, what)
	}
}

// errGivenUp is that of a call which lasted long and got no place.
var errGivenUp = errors.New("the API server does not answer, and neither to other calls for jobs of this namespace")

// turnKey is that of a context's turn.
type turnKey struct{}

// write does one call that changes something, which webhooks may hold up. What says
// which: a webhook is mostly about one kind of object.
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

// passed reports whether a call has come past webhooks: that an object is there already
// is found behind them.
func passed(err error) bool { return err == nil || apierrors.IsAlreadyExists(err) }

// putOff is how long a job waits that found no place: not all look again at once.
func putOff() time.Duration { return slowAgain + rand.N(slowAgain) }
