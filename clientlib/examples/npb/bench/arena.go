package bench

import (
	"errors"
	"fmt"
	"reflect"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Arena allocates a kernel's message buffers from the session's shared memory,
// where the sidecar reads and writes them in place, and frees all of them at
// once. Only the goroutine that runs the kernel may use it.
type Arena struct {
	session *outrigger.Session
	parent  *Arena // nil: the Arena is no child
	held    uint64
	free    []func() error
}

// NewArena allocates nothing yet.
func NewArena(c *outrigger.Comm) *Arena { return &Arena{session: c.Session()} }

// Child returns an Arena that is released separately, for a buffer that grows. Its
// errors count the parent's bytes, too.
func (a *Arena) Child() *Arena { return &Arena{session: a.session, parent: a} }

// Buffer returns n zeroed elements of arena memory. The error of an arena that
// is too small names the purpose and the bytes, so that a person can size it.
func Buffer[T outrigger.Number](a *Arena, n int, purpose string) ([]T, error) {
	// An empty block still needs an address, since it may be a message buffer.
	b, err := outrigger.Alloc[T](a.session, max(n, 1))
	bytes := uint64(max(n, 1)) * uint64(reflect.TypeFor[T]().Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %d bytes of arena memory, on top of %d that this rank's kernel holds already: %w; "+
			"start the job with OUTRIGGER_ARENA set to more than %d bytes", purpose, bytes, a.Held(), err, a.Held()+bytes)
	}
	clear(b)
	a.held += bytes
	a.free = append(a.free, func() error { return outrigger.Free(a.session, b) })
	return b[:n], nil
}

// Held returns the number of bytes allocated and not yet released, the parents'
// included.
func (a *Arena) Held() uint64 {
	if a.parent == nil {
		return a.held
	}
	return a.held + a.parent.Held()
}

// Release frees every buffer; the Arena may be used again.
func (a *Arena) Release() error {
	var errs []error
	for _, free := range a.free {
		errs = append(errs, free())
	}
	a.free, a.held = nil, 0
	return errors.Join(errs...)
}
