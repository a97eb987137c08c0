package gather

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Remote is a link whose registrations of applications' memory go through the cache.
// The engine hands it to the core in the link's place.
type Remote struct {
	link.Remote
	*Chooser
}

// Releaser is a link that can keep a registration of which the core knows that its
// operation has ended in order, as its peer has said. Without it the core calls
// Deregister.
type Releaser interface {
	Release(link.Key)
}

// pinner makes a link a regcache.Registrar.
type pinner struct{ link.Remote }

// Deregister ends registrations.
func (p pinner) Deregister(keys []link.Key) {
	for _, k := range keys {
		p.Remote.Deregister(k)
	}
}

// Over puts a cache over a link.
func Over(l link.Remote, cfg Config) (*Remote, error) {
	c, err := New(cfg, pinner{l})
	if err != nil {
		return nil, err
	}
	return &Remote{Remote: l, Chooser: c}, nil
}

// kept reports whether registrations of a range go through the cache: those of
// applications' memory do. The engine's own is registered for good.
func (r *Remote) kept(ref link.Ref) bool { return r.remote != nil && r.Knows(ref.Region) }

// Register makes ref reachable by peers until Deregister, or Release.
func (r *Remote) Register(ref link.Ref) (link.Key, error) {
	if !r.kept(ref) {
		return r.Remote.Register(ref)
	}
	l, ok := r.remote.Acquire(ref)
	if !ok {
		return link.Key{}, fmt.Errorf("%w: %d bytes", ErrNoRoom, ref.Len)
	}
	return l.Key, nil
}

// Deregister ends a registration at once, whoever shares it: its operation has ended
// early.
func (r *Remote) Deregister(k link.Key) {
	if r.remote == nil || !r.remote.Revoke(k) {
		r.Remote.Deregister(k)
	}
}

// Release ends the use of a registration whose operation has ended in order.
func (r *Remote) Release(k link.Key) {
	if r.remote == nil || !r.remote.ReleaseKey(k) {
		r.Remote.Deregister(k)
	}
}
