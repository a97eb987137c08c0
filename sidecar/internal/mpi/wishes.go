package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// wish is what a job asks for beside its MPI: variables, and a library that is loaded
// before all others.
type wish struct {
	env     []string
	preload string
}

// preloaded is a wish with a library that lies beside the provider in dir. name is the
// variable by which it was asked for.
func preloaded(dir, file, name string, env ...string) (wish, error) {
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); err != nil {
		return wish{}, fmt.Errorf("%s is set, and %s is not beside the provider: %w", name, file, err)
	}
	return wish{env: env, preload: path}, nil
}

// wishes is the environment of all that a job asks for, and of more.
func wishes(f Family, dir string, more ...wish) ([]string, error) {
	check, err := checking(f, dir)
	if err != nil {
		return nil, err
	}
	placing, err := placement(dir)
	if err != nil {
		return nil, err
	}
	progress, err := progressing(dir)
	if err != nil {
		return nil, err
	}
	var env, preload []string
	for _, w := range append(more, check, placing, progress) {
		env = append(env, w.env...)
		if w.preload != "" {
			preload = append(preload, w.preload)
		}
	}
	if own := os.Getenv("LD_PRELOAD"); own != "" {
		preload = append(preload, own)
	}
	return append(env, "LD_PRELOAD="+strings.Join(preload, ":"), sanitized(os.Getenv("ASAN_OPTIONS"))), nil
}

// sanitized lets a program that was built with AddressSanitizer start with libraries before its
// own: the sanitizer refuses that unless it is told otherwise, and none of ours has functions
// that it replaces, but for the allocator's, which such a program does without.
func sanitized(options string) string {
	const allowed = "verify_asan_link_order=0"
	if options == "" {
		return "ASAN_OPTIONS=" + allowed
	}
	return "ASAN_OPTIONS=" + options + ":" + allowed
}
