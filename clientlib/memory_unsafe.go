package outrigger

import (
	"fmt"
	"unsafe"
)

// Number is the constraint of element types of messages.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint |
		~float32 | ~float64 | ~complex64 | ~complex128
}

func sizeOf[T Number]() int {
	var v T
	return int(unsafe.Sizeof(v))
}

// bytesOf returns the memory of b. Any bytes are a valid value, because numbers have no pointers.
func bytesOf[T Number](b []T) []byte {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), len(b)*sizeOf[T]())
}

// rawBytes returns the memory of b, whose type StructOf has checked: any bytes are a valid value.
func rawBytes[T any](b []T) []byte {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), len(b)*int(unsafe.Sizeof(b[0])))
}

// sliceOf returns b, which is aligned as memory of the arena, as n elements of a type without
// pointers.
func sliceOf[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// inArena returns the offset of b in the arena, if b is in it.
func (s *Session) inArena(b []byte) (off int, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	d := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&s.arenaMem[0]))
	return int(d), d < uintptr(len(s.arenaMem)) && int(d)+len(b) <= len(s.arenaMem)
}

// partOfMemory returns the offset of b in a, if all of b is in a.
func partOfMemory(b, a []byte) (off uint64, ok bool) {
	d := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a)))
	return uint64(d), d < uintptr(len(a)) && len(b) <= len(a)-int(d)
}

// live returns an error for memory that was freed, because it may be allocated for another purpose.
// In a program that has freed nothing it costs one load.
func (s *Session) live(b []byte) error {
	if !s.arena.everFreed.Load() {
		return nil
	}
	if off, ok := s.inArena(b); ok && s.arena.freed(off, len(b)) {
		return fmt.Errorf("%w: the buffer is memory from Alloc that was freed", ErrNotAllocated)
	}
	return nil
}

// Alloc returns n zeroed elements of memory that is shared with the sidecar.
// They are sent and received without a copy in the application.
func Alloc[T Number](s *Session, n int) ([]T, error) {
	size := sizeOf[T]()
	if n < 0 {
		return nil, s.fail("alloc", s.world, AnySource, AnyTag, 0, fmt.Errorf("%w: %d elements", ErrInvalid, n))
	}
	if n > len(s.arenaMem)/size {
		return nil, s.fail("alloc", s.world, AnySource, AnyTag, 0, fmt.Errorf("%w: %d elements of %d bytes, of an arena of %s; %s", ErrNoMemory, n, size, bytesText(uint64(len(s.arenaMem))), raiseArena))
	}
	if n == 0 {
		return nil, nil
	}
	mem, err := s.allocBytes(n * size)
	if err != nil {
		return nil, s.fail("alloc", s.world, AnySource, AnyTag, n*size, err)
	}
	return sliceOf[T](mem, n), nil
}

func (s *Session) allocBytes(n int) ([]byte, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	off, err := s.arena.alloc(n)
	if err != nil {
		return nil, err
	}
	mem := s.arenaMem[off : off+n]
	clear(mem)
	return mem, nil
}

// overlap reports whether two buffers share a byte.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// Free frees memory from Alloc. If an open operation reads or writes a part of it, Free returns an
// ErrInvalid and the memory stays allocated: wait for the operation, or cancel it, before Free.
func Free[T Number](s *Session, b []T) error {
	if len(b) == 0 {
		return nil
	}
	if err := s.freeBytes(bytesOf(b)); err != nil {
		return s.fail("free", s.world, AnySource, AnyTag, len(b)*sizeOf[T](), err)
	}
	return nil
}

// freeBytes frees memory of which the program may still have slices.
func (s *Session) freeBytes(b []byte) error {
	if err := s.unused(b); err != nil {
		return err
	}
	s.arena.everFreed.Store(true)
	return s.returnBytes(b)
}

// unused returns an error if an open operation reads or writes an allocation: the next Alloc could
// return memory into which a message is received.
func (s *Session) unused(b []byte) error {
	off, ok := s.inArena(b)
	if !ok {
		return nil // returnBytes returns the error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.gone.Load() {
		return nil // no sidecar uses the memory any more
	}
	if err := s.progress(); err != nil { // an operation whose completion is in the ring uses no memory
		return err
	}
	n := max(s.arena.sizeOf(off), len(b))
	for _, o := range s.ops.list {
		if o.inUse(off, n) {
			return fmt.Errorf("%w: %s has not ended and uses this memory; wait for it, or cancel it, before Free", ErrInvalid, o.name())
		}
	}
	return nil
}

// returnBytes frees memory that only the library has used.
func (s *Session) returnBytes(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	off, ok := s.inArena(b)
	if !ok {
		return ErrNotAllocated
	}
	if err := s.notExposed(off, len(b)); err != nil {
		return err
	}
	return s.arena.release(off)
}
