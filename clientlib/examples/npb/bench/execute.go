package bench

import (
	"errors"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// Execute runs a kernel's problem of the given class, and releases the kernel's memory
// at the end. Errors begin with the kernel's name.
func Execute[P any](comm *outrigger.Comm, name string, problems map[Class]P, class Class, run func(arena *Arena, p P) (Result, error)) (Result, error) {
	p, err := Lookup(problems, class)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", name, err)
	}
	arena := NewArena(comm)
	result, err := run(arena, p)
	if err := errors.Join(err, arena.Release()); err != nil {
		return Result{}, fmt.Errorf("%s: %w", name, err)
	}
	result.Class = class
	return result, nil
}
