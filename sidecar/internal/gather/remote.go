package gather

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Remote is a link whose registrations of applications' memory are cached. The engine
// uses it instead of the link.
type Remote struct {
	link.Remote
	*Chooser
}

// pinner makes a link a regcache.Registrar.
type pinner struct{ link.Remote }

// Deregister ends registrations.
func (p pinner) Deregister(keys []link.Key) {
	for _, k := range keys {
		p.Remote.Deregister(k)
	}
}

// Over returns a link with a cache.
func Over(l link.Remote, cfg Config) (*Remote, error) {
	c, err := New(cfg, pinner{l}, pinner{l})
	if err != nil {
		return nil, err
	}
	return &Remote{Remote: l, Chooser: c}, nil
}

// Abilities returns the abilities of the cache: of the link's it passes on only
// link.Remote.
func (r *Remote) Abilities() link.Abilities {
	return link.Abilities{
		Remote: r, Expose: r.Expose, Release: r.Release,
		AddRegion: r.AddRegion, DropRegion: r.DropRegion,
		Buffers: r.Buffers, EndSession: r.EndSession,
	}
}

// Register makes ref accessible to peers until Deregister, or Release.
func (r *Remote) Register(ref link.Ref) (link.Key, error) {
	if r.Exports(ref) {
		return r.Export(ref)
	}
	return r.Remote.Register(ref)
}

// Expose registers ref apart from the cache: the registration is not shared, and ends
// only with Deregister (link.Abilities).
func (r *Remote) Expose(ref link.Ref) (link.Key, error) { return r.Remote.Register(ref) }

// Deregister ends a registration at once, even if other peers share it: its operation has
// ended early.
func (r *Remote) Deregister(k link.Key) {
	if !r.EndExport(k, false) {
		r.Remote.Deregister(k)
	}
}

// Release ends the use of a registration whose operation has ended in order
// (link.Abilities).
func (r *Remote) Release(k link.Key) {
	if !r.EndExport(k, true) {
		r.Remote.Deregister(k)
	}
}

// Exports reports whether registrations of a range for peers are cached: those of
// applications' memory are. The engine's own memory stays registered.
func (c *Chooser) Exports(ref link.Ref) bool { return c.remote != nil && c.Knows(ref.Region) }

// Export returns the key of a registration for peers that contains ref, and makes one if
// there is none. Preconditions: Exports(ref).
func (c *Chooser) Export(ref link.Ref) (link.Key, error) {
	l, ok := c.remote.Acquire(ref)
	switch {
	case !ok && c.remote.Later():
		return link.Key{}, link.ErrLater
	case !ok:
		return link.Key{}, fmt.Errorf("%w: %d bytes", ErrNoRoom, ref.Len)
	}
	return l.Key, nil
}

// EndExport ends the use of a registration for peers; if its operation has not ended in
// order, the registration ends, even if other peers share it. It returns false if the key
// is not in the cache.
func (c *Chooser) EndExport(k link.Key, inOrder bool) bool {
	switch {
	case c.remote == nil:
		return false
	case inOrder:
		return c.remote.ReleaseKey(k)
	}
	return c.remote.Revoke(k)
}
